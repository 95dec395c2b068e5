// The GPUs of this machine as devices, by the CUDA driver, which is loaded at run time. Built
// without CUDA's headers, every function here that can fail answers kUnimplemented.
//
// Every device has the primary context of its GPU, which is current on the calling thread after any
// call to the device or to what it made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"

namespace hir::device {

// What the driver's library is called; tests name one of their own.
inline constexpr std::string_view kCudaDriver = "libcuda.so.1";

// How many GPUs the driver shows (CUDA_VISIBLE_DEVICES counts).
// Errors: kFailedPrecondition: no driver, a driver too old (naming both versions), no GPU.
Result<int64_t> NumCudaDevices(std::string_view driver = kCudaDriver);

// What code generation and planning read of a GPU.
struct CudaFacts {
  std::string model = {};  // "NVIDIA H200"
  std::string uuid = {};   // 16 bytes.
  int architecture = 0;    // 90: compute capability 9.0
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  int registers_per_multiprocessor = 0;
  int64_t shared_bytes_per_block = 0;  // With opting in, the most a kernel may ask for.
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int driver_version = 0;  // 13000: CUDA 13.0
};

// Without opening the GPU. Errors: as NumCudaDevices; kNotFound: no GPU of that ordinal.
Result<CudaFacts> CudaFactsOf(int64_t ordinal, std::string_view driver = kCudaDriver);
// REQUIRES here and below: a device, stream, event or kernel of this folder.
Result<CudaFacts> FactsOf(Device& device);

struct CudaDeviceOptions {
  int64_t ordinal = 0;
  int64_t memory_bytes_max = 0;  // Limit "device_bytes_max" of Allocate; 0: 90 % of what is free.
  int64_t streams_max = 1024;    // Limit "streams_max" of CreateStream.
  std::string driver = std::string(kCudaDriver);
};

// Named "cuda:<ordinal>". Its memory is one range of addresses, the slab, which gets physical memory
// as allocations need it. Its destructor REQUIRES that streams, events and allocations are gone.
// Errors: as CudaFactsOf; kUnavailable: this GPU cannot be opened.
Result<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options);

// --- host memory ---------------------------------------------------------------------------------

// Copies between device and host memory, through pinned staging memory; done when they return. They
// are ordered with no stream: the caller has synchronized what wrote, or still reads, the bytes.
// REQUIRES: as many bytes on either side.
Status CopyFromHost(Device& device, Buffer dst, std::span<const std::byte> src);
Status CopyToHost(Device& device, std::span<std::byte> dst, Buffer src);

// Host memory that the device can reach for as long as the result lives (a progress page, a shard in
// shared memory): buffer() is what streams name it by. `memory` begins and ends at page boundaries.
Result<std::unique_ptr<Allocation>> MapHostMemory(Device& device, std::span<std::byte> memory);

// Pinned host memory that the device can reach too, under the same address: for copies that streams
// do without staging.
Result<std::unique_ptr<Allocation>> AllocateHostMemory(Device& device, int64_t bytes);

// --- kernels -------------------------------------------------------------------------------------

// For CudaKernelInfo::ctas_per_sm: as many as the GPU holds at once.
inline constexpr int kCtasThatFit = -1;

// What a launch of a kernel needs beside its code. The kernel's only parameter is a block of
// num_slots 8-byte slots (`const __grid_constant__ Args`): addresses, extents, scalars, in the order
// of Stream::Launch's args, of which there may be fewer: the rest is zero. Launch's grid counts CTAs, or what they do.
struct CudaKernelInfo {
  std::string name = {};
  std::string symbol = {};   // Its name in the cubin; empty: `name`.
  int threads = 0;           // Of a CTA.
  int64_t shared_bytes = 0;  // Dynamic.
  int ctas_per_sm = 0;       // 0: not persistent. Else at most that many per multiprocessor run.
  bool dependent = false;    // May start before its predecessor has ended (programmatic dependent
                             // launch): the code waits by griddepcontrol before it reads.
  int num_slots = 0;
  int64_t grid_per_cta = 1;  // How much of Launch's grid one CTA does; the last may have less.
};

// The kernels of a cubin. Errors: kInvalidArgument: the driver refuses the code (its words), a
// kernel is missing, its parameter is not num_slots slots, it cannot have that many threads or bytes.
Result<std::unique_ptr<KernelSource>> LoadCubin(Device& device, std::string_view cubin,
                                                std::span<const CudaKernelInfo> kernels);

// What the driver says of a loaded kernel.
struct CudaKernelFacts {
  int registers = 0;         // Per thread.
  int64_t local_bytes = 0;   // Per thread: spills and stack; 0 in good code.
  int64_t shared_bytes = 0;  // Static.
  int threads_max = 0;       // Of a CTA.
  int ctas_that_fit = 0;     // On one multiprocessor, with the info's threads and shared_bytes.
};
CudaKernelFacts FactsOf(const Kernel& kernel);

// --- time ----------------------------------------------------------------------------------------

// An event that keeps the time, which those of Device::CreateEvent do not: they cost less.
Result<std::unique_ptr<Event>> CreateTimedEvent(Device& device);
// Device time between the latest records of two timed events. Errors: kFailedPrecondition when one
// keeps no time or has not fired.
Result<double> ElapsedMs(Event& from, Event& to);

// --- for libraries that take the driver's own handles ---------------------------------------------

void* NativeStream(Stream& stream);  // CUstream, cudaStream_t; each call counts as work in WorkMark.
// A number that is another, on this and any other stream of the device, once more work was queued: two calls that
// give the same have nothing between them. Recording events is no work.
int64_t WorkMark(Stream& stream);
// What is queued on the stream becomes part of a graph (Device::BeginCapture).
bool IsCapturing(Stream& stream);
// Says that a library queues work on NativeStream(stream) from here on, which may fail later: it is
// under way until the completion is told. A failure is then the stream's, at this point, and reaches
// the streams that waited for it meanwhile. In a capture the completion means nothing.
Completion BeginWork(Stream& stream);
void* NativeContext(Device& device);  // CUcontext
void MakeCurrent(Device& device);     // On the calling thread.

// --- for the other processes of this machine -------------------------------------------------------

// Memory of the device that other processes can map by a file descriptor.
struct SharedMemory {
  std::unique_ptr<Allocation> memory = {};  // Others that have mapped it keep it.
  base::Fd fd = {};
};
// At least `bytes`, uninitialised. Errors: as Device::Allocate; kUnimplemented: the driver shares no memory.
Result<SharedMemory> AllocateShared(Device& device, int64_t bytes);
// The `bytes` of another device's AllocateShared, of this process or another, at an address of this device. The
// descriptor stays the caller's. Errors: kUnavailable: this device cannot reach that one.
Result<std::unique_ptr<Allocation>> MapShared(Device& device, int fd, int64_t bytes);
// Copies as many bytes as `buffer` has from such memory, or to it; done when it returns. REQUIRES: nothing that is
// queued uses the buffer. Errors: kInvalidArgument: `fd` is no such memory, or this device cannot reach it.
Status CopyShared(Device& device, Buffer buffer, int fd, bool to_shared);

// In stream order: waits until the word, 8 bytes, is 1, and makes it 0. A Fill of 8 bytes with 1, from any device, is
// what it waits for. In a capture that is not fixed (Device::CaptureFixed) it is an error.
void TakeWord(Stream& stream, Buffer word);

}  // namespace hir::device
