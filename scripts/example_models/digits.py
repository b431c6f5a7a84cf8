"""The UCI optical digits (models/README.md): LeNet's training set and the labelled input of the load generator."""

import array
import gzip
import os
import sys

import torch
from torch import nn

from .networks import LeNet

HELD_OUT = 397
LEAST_ACCURACY = 0.97


def _read(models):
    """Images as FP32[n,1,28,28] between 0 and 1, and labels; in an order shuffled by a fixed seed."""
    with gzip.open(os.path.join(models, "digits.csv.gz"), "rt") as file:
        rows = torch.tensor([[float(number) for number in line.split(",")] for line in file])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1797))]
    small = rows[:, :64].reshape(-1, 1, 8, 8) / 16
    return nn.functional.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False), rows[:, 64].long()


def _write_held_out(generated, images, labels):
    numbers = array.array("f", images.flatten().tolist())
    if sys.byteorder == "big":
        numbers.byteswap()
    for name, content in (("digits.f32", numbers.tobytes()),
                          ("digits.labels", "".join(f"{label}\n" for label in labels.tolist()).encode())):
        partial = os.path.join(generated, name + ".partial")
        with open(partial, "wb") as file:
            file.write(content)
        os.replace(partial, os.path.join(generated, name))


def train_lenet(models):
    """Trains on all but the held-out images, which it writes to models/generated. Returns the network and its
    accuracy on them."""
    images, labels = _read(models)
    generator = torch.Generator().manual_seed(28)
    net = LeNet()
    train_images, train_labels = images[HELD_OUT:], labels[HELD_OUT:]
    batch, epochs = 50, 25
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=4e-3, total_steps=epochs * -(-len(train_images) // batch))
    net.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(train_images), generator=generator).split(batch):
            # Shifting by up to two pixels either way stands in for more writers.
            shift = torch.randint(-2, 3, (2,), generator=generator).tolist()
            loss = nn.functional.cross_entropy(net(train_images[chosen].roll(shift, (2, 3))), train_labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    net.eval()
    with torch.no_grad():
        accuracy = (net(images[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]).float().mean().item()
    if accuracy <= LEAST_ACCURACY:
        raise RuntimeError(f"LeNet reached only {accuracy:.3f} on the held-out digits; expected more than {LEAST_ACCURACY}")
    _write_held_out(os.path.join(models, "generated"), images[:HELD_OUT], labels[:HELD_OUT])
    return net, accuracy
