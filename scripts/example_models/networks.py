"""The example networks that torchvision does not have: LeNet, SSD-MobileNet-V1 and BERT-base."""

import math

import torch
from torch import nn


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max-pooling: FP32[1,28,28] to ten logits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, image):
        return self.classifier(self.features(image).flatten(1))


def _convolution(inputs, outputs, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs), nn.ReLU6())


def _separable(inputs, outputs, stride=1):
    return nn.Sequential(_convolution(inputs, inputs, 3, stride, groups=inputs), _convolution(inputs, outputs, 1))


class SsdMobileNetV1(nn.Module):
    """Single-shot detector on MobileNet-V1, FP32[3,300,300].

    Answers with every anchor's box (top, left, bottom, right, as parts of the image) and its 91 class scores; choosing
    among overlapping boxes is left to the client, so that the shapes are fixed.
    """

    CLASSES = 91
    # Side of each feature map, and anchors at each of its cells: 1917 anchors in all.
    MAPS = ((19, 3), (10, 6), (5, 6), (3, 6), (2, 6), (1, 6))
    CHANNELS = (512, 1024, 512, 256, 256, 128)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            _convolution(3, 32, 3, stride=2), _separable(32, 64), _separable(64, 128, 2), _separable(128, 128),
            _separable(128, 256, 2), _separable(256, 256), _separable(256, 512, 2),
            *[_separable(512, 512) for _ in range(5)])
        extra = [nn.Sequential(_separable(512, 1024, 2), _separable(1024, 1024))]
        for before, after in zip(self.CHANNELS[1:], self.CHANNELS[2:]):
            extra.append(nn.Sequential(_convolution(before, after // 2, 1), _convolution(after // 2, after, 3, 2)))
        self.extra = nn.ModuleList(extra)
        self.box_heads = nn.ModuleList(
            nn.Conv2d(channels, anchors * 4, 1) for channels, (_, anchors) in zip(self.CHANNELS, self.MAPS))
        self.class_heads = nn.ModuleList(
            nn.Conv2d(channels, anchors * self.CLASSES, 1) for channels, (_, anchors) in zip(self.CHANNELS, self.MAPS))
        self.register_buffer("anchors", self._make_anchors())

    @classmethod
    def _make_anchors(cls):
        """Centre y, centre x, height, width of each anchor, in the order of the heads' outputs."""
        scales = [0.2 + 0.15 * level for level in range(len(cls.MAPS))] + [1.0]
        rows = []
        for level, (side, count) in enumerate(cls.MAPS):
            shapes = [(scales[level], ratio) for ratio in (1.0, 2.0, 0.5, 3.0, 1.0 / 3.0)]
            shapes.append((math.sqrt(scales[level] * scales[level + 1]), 1.0))
            if level == 0:
                shapes = [(0.1, 1.0), (scales[0], 2.0), (scales[0], 0.5)]
            assert len(shapes) == count
            for y in range(side):
                for x in range(side):
                    for scale, ratio in shapes:
                        rows.append([(y + 0.5) / side, (x + 0.5) / side,
                                     scale / math.sqrt(ratio), scale * math.sqrt(ratio)])
        return torch.tensor(rows)

    def forward(self, image):
        feature = self.stem(image)
        features = [feature]
        for step in self.extra:
            feature = step(feature)
            features.append(feature)
        boxes, scores = [], []
        for feature, box_head, class_head in zip(features, self.box_heads, self.class_heads):
            boxes.append(box_head(feature).permute(0, 2, 3, 1).reshape(image.size(0), -1, 4))
            scores.append(class_head(feature).permute(0, 2, 3, 1).reshape(image.size(0), -1, self.CLASSES))
        return self._decode(torch.cat(boxes, 1)), torch.cat(scores, 1).sigmoid()

    def _decode(self, offsets):
        """Head outputs are shifts and growths of the anchors, in the customary units of a tenth and a fifth."""
        centre = offsets[..., :2] / 10 * self.anchors[:, 2:] + self.anchors[:, :2]
        half = (offsets[..., 2:] / 5).exp() * self.anchors[:, 2:] / 2
        return torch.cat([centre - half, centre + half], -1)


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.attended = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def _split(self, x):
        return x.reshape(x.size(0), x.size(1), self.heads, x.size(2) // self.heads).transpose(1, 2)

    def forward(self, x):
        query, key, value = self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        weights = (query @ key.transpose(-1, -2) / math.sqrt(query.size(-1))).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(x.size(0), x.size(1), x.size(2))
        x = self.attention_norm(x + self.attended(mixed))
        return self.output_norm(x + self.narrow(nn.functional.gelu(self.widen(x))))


class Bert(nn.Module):
    """BERT-base's encoder: INT64[14] token ids to the pooled FP32[768].

    One segment, no padding. An id outside the vocabulary counts as the unknown word: an error would fail the whole
    batch, and with it the requests of others.
    """

    VOCABULARY, UNKNOWN, TOKENS, WIDTH, LAYERS, HEADS = 30522, 100, 14, 768, 12, 12

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.places = nn.Parameter(torch.empty(self.TOKENS, self.WIDTH).normal_(std=0.02))
        self.norm = nn.LayerNorm(self.WIDTH, eps=1e-12)
        self.layers = nn.Sequential(*[BertLayer(self.WIDTH, self.HEADS) for _ in range(self.LAYERS)])
        self.pooler = nn.Linear(self.WIDTH, self.WIDTH)

    def forward(self, tokens):
        known = (tokens >= 0) & (tokens < self.VOCABULARY)
        words = self.words(torch.where(known, tokens, torch.full_like(tokens, self.UNKNOWN)))
        hidden = self.layers(self.norm(words + self.places))
        return self.pooler(hidden[:, 0]).tanh()
