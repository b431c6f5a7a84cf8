"""Prints the milliseconds per batch of LibTorch in a loop, with the input already on the GPU.

  libtorch_loop.py MODEL.pt '[32, 3, 224, 224]' GPU
"""
import json
import statistics
import sys
import time

import torch

WARM_UP = 20
BLOCKS = 15
BATCHES = 10  # between two looks at the clock: kernels are sent ahead, as a loop that never waits sends them


def main() -> None:
    file, shape, gpu = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    device = torch.device(f"cuda:{gpu}")
    model = torch.jit.load(file, map_location=device).eval()
    batch = torch.rand(shape, device=device) if len(shape) > 2 else torch.randint(0, 1000, shape, device=device)
    blocks = []
    with torch.inference_mode():
        for _ in range(WARM_UP):
            model(batch)
        for _ in range(BLOCKS):
            torch.cuda.synchronize(device)
            begun = time.perf_counter()
            for _ in range(BATCHES):
                model(batch)
            torch.cuda.synchronize(device)
            blocks.append((time.perf_counter() - begun) * 1000 / BATCHES)
    print(statistics.median(blocks))


if __name__ == "__main__":
    main()
