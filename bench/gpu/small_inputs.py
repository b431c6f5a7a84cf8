"""Writes a TorchScript model that makes its inputs on its device from one number per request.

  small_inputs.py MODEL.pt '[[3, 224, 224]]' OUT.pt
"""
import json
import sys
from typing import List

import torch


class SmallInputs(torch.nn.Module):
    """The network computes the same; its inputs are a constant image plus the request's number."""

    def __init__(self, network, shape):
        super().__init__()
        self.network = network
        self.register_buffer("image", torch.rand(1, *shape))
        self.ones: List[int] = [1] * len(shape)

    def forward(self, number):
        return self.network(self.image + 0.001 * number.view([-1] + self.ones))


def main() -> None:
    file, shapes, out = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    if len(shapes) != 1:
        sys.exit("only models with one input")
    network = torch.jit.load(file, map_location="cpu").eval()
    torch.jit.script(SmallInputs(network, shapes[0]).eval()).save(out)


if __name__ == "__main__":
    main()
