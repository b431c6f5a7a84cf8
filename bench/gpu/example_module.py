"""The network of one example model, for `gpulet export --module example_module.py:make`: EXAMPLE_MODEL names it."""
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import export_models  # noqa: E402
import torch  # noqa: E402


def make():
    name = os.environ["EXAMPLE_MODEL"]
    example = next(one for one in export_models.EXAMPLES if one.name == name)
    torch.manual_seed(0)
    with torch.set_grad_enabled(name == "lenet"):  # which is trained
        net, _ = export_models.build(example, pretrained=False)
    return net.eval()
