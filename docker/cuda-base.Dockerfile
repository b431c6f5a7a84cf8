# A Debian 12 with CUDA's run-time libraries, for the backend's image on machines with NVIDIA's container toolkit, which
# brings the driver's own:
#   docker build -f docker/cuda-base.Dockerfile -t gpulet-cuda-base:12 docker
#   docker build -f docker/Dockerfile --target backend --build-arg BASE=gpulet-cuda-base:12 -t gpulet-backend:0.1.0-cuda .
FROM debian:12-slim
ARG CUDA=12-6
ADD https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb /tmp/keyring.deb
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
 && dpkg -i /tmp/keyring.deb && rm /tmp/keyring.deb \
 && apt-get update && apt-get install -y --no-install-recommends cuda-libraries-${CUDA} \
 && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
