#!/usr/bin/env python3
"""scripts/example_models/classifiers.py against torchvision: with the same weights they answer the same."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
try:
    import torch
    import torchvision
except ImportError as error:
    print(f"{error}; skipped")
    sys.exit(77)
from example_models import classifiers  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(1)
with torch.no_grad():
    image = torch.randn(1, 3, 224, 224)
    # One of each kind: the others differ in numbers only.
    for name in ("alexnet", "mobilenet_v2", "resnet18", "resnet50"):
        ours, theirs = classifiers.MAKERS[name]().eval(), getattr(torchvision.models, name)(weights=None).eval()
        ours.load_state_dict(theirs.state_dict())
        if not torch.allclose(ours(image), theirs(image)):
            sys.exit(f"{name} answers otherwise than torchvision's")
