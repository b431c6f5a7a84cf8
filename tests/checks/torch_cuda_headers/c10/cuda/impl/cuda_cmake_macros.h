// LibTorch's build makes this header where it has CUDA, and a LibTorch without CUDA may come with
// all others. For gpulet_cuda_parts_check, which compiles and does not link.
#pragma once
