# Two images for machines with NVIDIA GPUs, from this repository:
#   docker build -f docker/gpu.Dockerfile --target backend -t gpulet-backend-gpu:0.1.0 .
#   docker build -f docker/gpu.Dockerfile --target tools   -t gpulet-tools-gpu:0.1.0 .
#
# "backend" serves; "tools" also has CUDA's toolkit and a compiler, to export, measure and try models. Both are a public image
# of PyTorch with a bundle of gpulet in /opt/gpulet. NVIDIA's container toolkit adds the driver's libraries and the programs
# of MPS when a container starts. docs/first-gpu-day.md has the steps, docker/README.md what a container needs.
#
# PYTORCH is the image without "-devel" or "-runtime". Its two variants have the same PyTorch in the same folder, so that an
# executor of the one runs in the other. It must be PyTorch 2.6 or later for .pt2 files, on Ubuntu 22.04 or later.
ARG PYTORCH=pytorch/pytorch:2.8.0-cuda12.8-cudnn9

FROM debian:12 AS build
WORKDIR /src
COPY scripts/setup scripts/onnxruntime-setup scripts/
RUN scripts/setup --for run && apt-get install -y --no-install-recommends patchelf
COPY . .
# The bundle's programs run on older systems than Debian 12, and without LibTorch; the packages of docker/Dockerfile do not.
RUN scripts/make-bundle --folder --out /bundle && mv /bundle/gpulet-* /opt/gpulet

FROM ${PYTORCH}-devel AS tools
RUN groupadd --system --gid 10001 gpulet && useradd --system --uid 10001 --gid gpulet --home-dir /var/lib/gpulet gpulet \
 && apt-get update && apt-get install -y --no-install-recommends ca-certificates g++ tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/gpulet /opt/gpulet
# Without "compute" there is neither CUDA nor nvidia-cuda-mps-control in a container, without "utility" no NVML.
ENV PATH=/opt/gpulet/bin:${PATH} NVIDIA_DRIVER_CAPABILITIES=compute,utility XDG_CACHE_HOME=/tmp/cache
RUN gpulet torch-setup
WORKDIR /work
USER gpulet
ENTRYPOINT ["tini", "--"]
CMD ["gpulet", "devices"]

FROM ${PYTORCH}-runtime AS backend
# tini reaps the servers of MPS: their parent has left them to the container's first process.
RUN groupadd --system --gid 10001 gpulet && useradd --system --uid 10001 --gid gpulet --home-dir /var/lib/gpulet gpulet \
 && apt-get update && apt-get install -y --no-install-recommends ca-certificates tini \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o gpulet -g gpulet -m 0750 /var/lib/gpulet /var/lib/gpulet/store
COPY --from=tools /opt/gpulet /opt/gpulet
COPY docker/compose/backend-of-gpu.json /etc/gpulet/backend.json
ENV PATH=/opt/gpulet/bin:${PATH} NVIDIA_DRIVER_CAPABILITIES=compute,utility XDG_CACHE_HOME=/tmp/cache
RUN gpulet torch-setup --check
WORKDIR /var/lib/gpulet
USER gpulet
VOLUME /var/lib/gpulet/store
# Connected to a frontend's port 7001 (1B59 in hexadecimal). Backends do not listen.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["grep", "-qsE", "^ *[0-9]+: [0-9A-F]+:[0-9A-F]{4} [0-9A-F]+:1B59 01 ", "/proc/net/tcp", "/proc/net/tcp6"]
ENTRYPOINT ["tini", "--"]
CMD ["gpulet-backend", "--config", "/etc/gpulet/backend.json"]
