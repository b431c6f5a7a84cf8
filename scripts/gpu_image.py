"""For scripts/check_images.py: what stands in for a public image of PyTorch with CUDA, and for the driver of a GPU.

The stand-in is a Debian with Debian's PyTorch, which has no CUDA. Where this machine has CUDA's toolkit, fake libraries make it
look like one that has: the executor compiles its CUDA parts, links and loads, and finds no GPU. Then a fake driver and a fake
MPS daemon (tests/support/gpu) show what a backend in a container asks of them."""
import io
import json
import re
import shutil
import zipfile
from pathlib import Path

from dockerfile_steps import Problem, must, run

ROOT = Path(__file__).resolve().parent.parent
TORCH = "/usr/lib/python3/dist-packages/torch"
TOOLKIT = Path("/usr/local/cuda")
PACKAGES = "python3 python3-torch libtorch-dev g++ binutils"
# What the executor's CUDA parts take from LibTorch's libraries for CUDA.
OF_CUDA = re.compile(r"\b_Z\w*(?:4cuda|CUDA)\w*")
FAKES = "/opt/fake-gpu"
STATE = "/run/fake-gpu"  # GPULET_FAKE_MPS: the settings of the fakes, and their records
GPU = "GPU-cccc0000-0000-0000-0000-000000000000"


# ---- PyTorch with CUDA

def install_pytorch(image):
    image.run(f"apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {PACKAGES}")


def has_toolkit():
    return (TOOLKIT / "include/cuda_runtime_api.h").is_file() and any((TOOLKIT / "lib64").glob("libcudart.so.*"))


def add_toolkit(image):
    """CUDA's headers, and its run-time library, which answers that there is no driver."""
    place = image.path("/opt/cuda")
    shutil.copytree(TOOLKIT / "include", place / "include", dirs_exist_ok=True)
    (place / "lib64").mkdir(exist_ok=True)
    for library in (TOOLKIT / "lib64").glob("libcudart.so*"):
        shutil.copy2(library, place / "lib64", follow_symlinks=False)
    image.environment["CUDA_HOME"] = "/opt/cuda"


def add_fake_torch_cuda(image):
    """libc10_cuda.so and libtorch_cuda.so with what the executor calls: every function returns 0, and there are 0 devices."""
    macros = ROOT / "tests/checks/torch_cuda_headers/c10/cuda/impl/cuda_cmake_macros.h"
    shutil.copy(macros, image.path("/usr/include/c10/cuda/impl/cuda_cmake_macros.h"))
    sources = image.path("/tmp/gpulet")
    for folder in ("include", "src"):
        shutil.copytree(ROOT / folder, sources / folder)
    image.run(f"""cd /tmp && g++ -std=c++20 -fPIC -w -Igpulet/include -Igpulet/src -I{TORCH}/include -I/opt/cuda/include \
      -I{TORCH}/include/torch/csrc/api/include -c gpulet/src/executor/torch/cuda_parts.cc -o parts.o && nm -u parts.o >wanted""")
    wanted = sorted(set(OF_CUDA.findall(image.path("/tmp/wanted").read_text(encoding="utf-8"))))
    if not wanted:
        raise Problem("the executor's CUDA parts use no function of LibTorch's libraries for CUDA")
    assembly = ".text\n" + "".join(f".globl {name}\n.type {name}, @function\n{name}:\n" for name in wanted)
    image.put("/tmp/fake.s", assembly + "xor %eax, %eax\nret\n.section .note.GNU-stack\n")
    runtime = sorted(library.name for library in (TOOLKIT / "lib64").glob("libcudart.so.*"))[0]
    image.run(f"""cd /tmp && g++ -shared fake.s -Wl,--no-as-needed -L/opt/cuda/lib64 -l:{runtime} -Wl,-rpath,/opt/cuda/lib64 \
      -Wl,-soname,libc10_cuda.so -o {TORCH}/lib/libc10_cuda.so \
      && g++ -shared -xc /dev/null -Wl,-soname,libtorch_cuda.so -o {TORCH}/lib/libtorch_cuda.so \
      && rm -r gpulet parts.o wanted fake.s""")


def make_pytorch(image, bare):
    """Prepares what is made of an image of PyTorch. Says what it cannot stand in for."""
    if bare:
        install_pytorch(image)
    elif run(["test", "-f", image.path(f"{TORCH}/__init__.py")]).returncode != 0:
        raise Problem("python3-torch is missing, which stands in for a public image of PyTorch: scripts/setup --for run")
    if has_toolkit():
        add_toolkit(image)
        add_fake_torch_cuda(image)


# ---- a GPU

def has_fakes(build):
    return build and (build / "fake-gpus/libcuda.so.1").is_file() and (build / "bin/gpulet-proxy-fake-gpu").is_file()


def add_fake_gpu(image, build):
    """What the container toolkit adds to a container: the driver's libraries and the programs of MPS. And in place of
    gpulet-proxy the one for a fake GPU, since nothing can be computed there."""
    folder = image.path(FAKES)
    shutil.copytree(build / "fake-gpus", folder, dirs_exist_ok=True)
    control = image.path("/usr/bin/nvidia-cuda-mps-control")
    shutil.copy(ROOT / "tests/support/gpu/fake_mps_control.sh", control)
    control.chmod(0o755)
    shutil.copy(build / "bin/gpulet-proxy-fake-gpu", image.path("/opt/gpulet/bin/gpulet-proxy"))
    image.environment.update(LD_LIBRARY_PATH=f"{FAKES}:/opt/gpulet/lib", GPULET_FAKE_GPUS=f"{STATE}/gpus", GPULET_FAKE_MPS=STATE)


def torchscript_file():
    """What is taken for TorchScript. The proxy for a fake GPU does not read it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for member in ("data.pkl", "code/__torch__.py", "constants.pkl", "data/0", "version"):
            archive.writestr(f"small/{member}", "")
    return content.getvalue()


def fake_machine(folder):
    """The files of a machine with one H200, in a folder to be mounted at STATE."""
    folder.mkdir()
    (folder / "gpus").write_text(f"gpu\nuuid {GPU}\nname NVIDIA H200\n", encoding="utf-8")
    return folder


def devices_problems(text):
    """What `gpulet devices --json` says in the container: the GPU, and the program of MPS."""
    found = json.loads(text)
    if GPU not in [gpu["uuid"] for gpu in found["gpus"]] or not found["mps"]["found"]:
        yield f"gpulet devices does not find the GPU, or no MPS: {text}"


def daemon_problems(state, user):
    """What the fake MPS daemon saw of the backend that started it."""
    said = {name: (state / name).read_text(encoding="utf-8") for name in ("environment", "commands") if (state / name).is_file()}
    if f"started as {user}:{user}" not in said.get("commands", ""):
        yield f"the backend has not started an MPS daemon as user {user}: {said.get('commands')}"
    pipes = re.search(r"^CUDA_MPS_PIPE_DIRECTORY=(.*)$", said.get("environment", ""), re.M)
    if not pipes or not pipes[1].startswith("/tmp/"):
        yield f"the pipes of the MPS daemon are not below /tmp: {said.get('environment')}"
    clients = list(state.glob("proxy.*"))
    shares = [one for one in clients if "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" in one.read_text(encoding="utf-8")]
    if not shares:
        yield f"no process became a client of the MPS daemon with a share; there are {len(clients)} processes"


def gpu_backend(backend_file):
    """A backend's file with the fakes' variables passed on, and a CPU core beside the GPU."""
    config = json.loads(backend_file.read_text(encoding="utf-8"))
    config["proxy_environment"] = ["GPULET_FAKE_GPUS", "GPULET_FAKE_MPS"]
    config["devices"].append({"type": "cpu-core", "count": 1, "cores": [0], "partitioning": "cpu_quota",
                              "sizes": [20, 40, 60, 80, 100], "max_partitions": 5, "memory_mb": 4096})
    return config
