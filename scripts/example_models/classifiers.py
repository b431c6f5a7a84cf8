"""Image classifiers for a Python that has torch and no torchvision: FP32[3,224,224] to a thousand logits.

The same networks as torchvision's of these names, with parameters of the same names, after the papers: He et al. 2016
(ResNet), Simonyan and Zisserman 2015 (VGG), Krizhevsky 2014 (AlexNet), Sandler et al. 2018 (MobileNetV2).
"""

from torch import nn

CLASSES = 1000


class Residual(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1 (bottleneck), beside a shortcut."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outputs)
        else:
            self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.bottleneck = bottleneck
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(self.relu(y)))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs, layers = 64, []
        for stage, count in enumerate(blocks):
            width = 64 << stage
            layer = []
            for block in range(count):
                layer.append(Residual(inputs, width, 2 if stage > 0 and block == 0 else 1, bottleneck))
                inputs = 4 * width if bottleneck else width
            layers.append(nn.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, image):
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class Flat(nn.Module):
    """Convolutions, then layers that see all of the image."""

    def __init__(self, features, side, classifier):
        super().__init__()
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(side)
        self.classifier = nn.Sequential(*classifier)

    def forward(self, image):
        return self.classifier(self.avgpool(self.features(image)).flatten(1))


def vgg(convolutions):
    """`convolutions`: how many between one halving of the image and the next."""
    features, inputs = [], 3
    for count, width in zip(convolutions, (64, 128, 256, 512, 512)):
        for _ in range(count):
            features += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        features.append(nn.MaxPool2d(2, 2))
    return Flat(features, 7, [
        nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, CLASSES)])


def alexnet():
    return Flat([
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)], 6, [
        nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, CLASSES)])


def _convolution(inputs, outputs, kernel, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, factor):
        super().__init__()
        width = inputs * factor
        layers = [_convolution(inputs, width, 1)] if factor != 1 else []
        layers += [_convolution(width, width, 3, stride, width), nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.shortcut else self.conv(x)


def mobilenet_v2():
    features, inputs = [_convolution(3, 32, 3, 2)], 32
    # Factor of the width inside, outputs, blocks, stride of the first.
    for factor, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                           (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(count):
            features.append(InvertedResidual(inputs, outputs, stride if block == 0 else 1, factor))
            inputs = outputs
    features.append(_convolution(320, 1280, 1))
    return Flat(features, 1, [nn.Dropout(0.2), nn.Linear(1280, CLASSES)])


MAKERS = {
    "alexnet": alexnet,
    "mobilenet_v2": mobilenet_v2,
    "resnet18": lambda: ResNet((2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: ResNet((3, 4, 6, 3), bottleneck=True),
    "vgg16": lambda: vgg((2, 2, 3, 3, 3)),
    "vgg19": lambda: vgg((2, 2, 4, 4, 4)),
}
