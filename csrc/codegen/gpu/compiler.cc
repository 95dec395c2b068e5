// From a plan to an artifact, and the caches.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/disk_cache.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;

namespace {

constexpr std::string_view kMagic = "hostir-gpu-3";
constexpr int kOldest = 80;
constexpr int64_t kKernelsMax = 64;

// Lines: magic, architecture, number of kernels, then of each its numbers and its cubin's bytes; the cubins.
std::string Pack(const Code& code) {
  std::string out = Cat(kMagic, "\n", code.architecture, "\n", code.kernels.size(), "\n");
  for (size_t i = 0; i < code.kernels.size(); ++i) {
    const KernelInfo& info = code.kernels[i];
    Append(out, info.threads, "\n", info.ctas_per_sm, "\n", info.items_per_cta, "\n",
           info.shared_bytes, "\n", info.dependent ? 1 : 0, "\n", info.num_slots, "\n",
           code.registers[i], "\n", code.spill_bytes[i], "\n", code.caps[i], "\n",
           code.schedules[i], "\n", code.cubins[i].size(), "\n");
  }
  return out + base::Join(code.cubins, "");
}

struct Built {
  std::string cubin;
  Resources resources;
  int cap = 0;
};

// Kernel `index`. A cap that makes registers spill costs more than the occupancy it buys: one CTA less, and again.
Result<Built> BuildKernel(const KernelPlan& plan, const Source& source,
                          std::span<const Tuning> tunings, size_t index, int architecture) {
  std::vector<int> caps = source.caps;
  std::string text = Cat(source.prelude, source.parts[index]);
  while (true) {
    HIR_ASSIGN(Compiled compiled, CompileCuda(text, architecture));
    const Resources resources = ResourcesOf(compiled.log, Cat("k", index));
    if (resources.spill_bytes == 0 || caps[index] == 1)
      return Built{std::move(compiled.cubin), resources, caps[index]};
    --caps[index];
    HIR_ASSIGN(const Source relaxed, EmitCuda(plan, caps, tunings));
    text = Cat(relaxed.prelude, relaxed.parts[index]);
  }
}

// The kernels side by side: a text each.
Result<Code> Build(const KernelPlan& plan, const Source& source, std::span<const Tuning> tunings,
                   int architecture) {
  std::vector<Result<Built>> built(source.parts.size(), Internal("not compiled"));
  const auto build = [&](size_t i) {
    built[i] = BuildKernel(plan, source, tunings, i, architecture);
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < built.size(); ++i) others.emplace_back(build, i);
    if (!built.empty()) build(0);
  }
  Code code = {.architecture = architecture,
               .kernels = source.kernels,
               .registers = {},
               .spill_bytes = {},
               .caps = {},
               .schedules = {},
               .cubins = {}};
  Source relaxed = source;
  for (size_t i = 0; i < built.size(); ++i) {
    Result<Built>& kernel = built[i];
    HIR_TRY(kernel.status());
    relaxed.caps[i] = kernel->cap;
    code.schedules.push_back(DescribeSchedule(relaxed, i));
    code.registers.push_back(kernel->resources.registers);
    code.spill_bytes.push_back(kernel->resources.spill_bytes);
    code.caps.push_back(kernel->cap);
    code.cubins.push_back(std::move(kernel->cubin));
  }
  return code;
}

}  // namespace

Result<Code> Unpack(std::string_view bytes) {
  const Status bad = InvalidArgument("these bytes are no GPU kernels of this version");
  bool ok = true;
  const auto line = [&] {
    const size_t end = bytes.find('\n');
    ok = ok && end != std::string_view::npos;
    const std::string_view text = ok ? bytes.substr(0, end) : std::string_view();
    if (ok) bytes.remove_prefix(end + 1);
    return text;
  };
  const auto number = [&](int64_t low, int64_t high) -> int64_t {
    const auto value = base::ParseInt(line());
    ok = ok && value && *value >= low && *value <= high;
    return ok ? *value : 0;
  };
  if (line() != kMagic) return bad;
  Code code;
  code.architecture = static_cast<int>(number(1, 10000));
  const int64_t count = number(0, kKernelsMax);
  std::vector<size_t> cubin_bytes;
  for (int64_t i = 0; ok && i < count; ++i) {
    KernelInfo info;
    info.threads = static_cast<int>(number(1, 1024));
    info.ctas_per_sm = static_cast<int>(number(-1, 64));
    info.items_per_cta = number(1, INT64_MAX);
    info.shared_bytes = number(0, INT32_MAX);
    info.dependent = number(0, 1) != 0;
    info.num_slots = static_cast<int>(number(0, 4096));
    code.kernels.push_back(info);
    code.registers.push_back(static_cast<int>(number(0, 255)));
    code.spill_bytes.push_back(static_cast<int>(number(0, INT32_MAX)));
    code.caps.push_back(static_cast<int>(number(0, 64)));
    code.schedules.emplace_back(line());
    cubin_bytes.push_back(static_cast<size_t>(number(0, INT32_MAX)));
  }
  for (const size_t size : cubin_bytes) {
    if (!ok || size > bytes.size()) return bad;
    code.cubins.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!ok || !bytes.empty()) return bad;
  return code;
}

Result<Artifact> Compiler::Compile(const KernelPlan& plan, std::span<const Tuning> tunings) {
  Artifact artifact;
  for (const Launch& launch : plan.launches) artifact.kernels.push_back(launch.kernel);
  const int architecture =
      plan.target.architecture > 0 ? plan.target.architecture : options_.architecture;
  if (architecture < kOldest) {
    return Unimplemented(Cat("kernels for compute capability ", architecture / 10, ".",
                             architecture % 10, ": the oldest is ", kOldest / 10, ".",
                             kOldest % 10));
  }
  HIR_ASSIGN(const Source source, EmitCuda(plan, {}, tunings));
  HIR_ASSIGN(artifact.bytes, BytesOf(plan, source, tunings, architecture));
  return artifact;
}

Result<std::string> Compiler::BytesOf(const KernelPlan& plan, const Source& source,
                                      std::span<const Tuning> tunings, int architecture) {
  // All that makes the cubins: what comes from another compiler has another key.
  const auto key_of = [&](const std::string& compiler) {
    return Cat("sm_", architecture, " ", kNvrtcOptions, " nvrtc ", compiler, "\n", source.prelude,
               base::Join(source.parts, ""));
  };
  HIR_ASSIGN(const std::string compiler, NvrtcIdentity());
  std::string key = key_of(compiler);
  {
    const std::lock_guard lock(mutex_);
    const auto found = cache_.find(key);
    if (found != cache_.end()) return found->second;
  }
  const auto remember = [&](const std::string& bytes, int64_t& counter) {
    const std::lock_guard lock(mutex_);
    ++counter;
    if (cache_.size() >= options_.cached_plans_max) cache_.clear();
    cache_.emplace(key, bytes);
  };
  const DiskCache disk(options_.cache_directory, options_.cache_bytes_max);
  const bool on_disk = !options_.cache_directory.empty();
  if (std::optional<std::string> bytes = on_disk ? disk.Read(key) : std::nullopt;
      bytes && Unpack(*bytes).ok()) {
    remember(*bytes, num_from_disk_);
    return *std::move(bytes);
  }
  HIR_ASSIGN(const Code code, Build(plan, source, tunings, architecture));
  const std::string bytes = Pack(code);
  HIR_ASSIGN(const std::string loaded, NvrtcIdentity());
  // Another than was found first when that could not be loaded.
  if (loaded != compiler) key = key_of(loaded);
  if (on_disk) disk.Write(key, bytes);
  remember(bytes, num_compiled_);
  return bytes;
}

int64_t Compiler::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

int64_t Compiler::num_from_disk() const {
  const std::lock_guard lock(mutex_);
  return num_from_disk_;
}

std::string DefaultCacheDirectory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return Cat(cache, "/hostir/kernels");
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? Cat(home, "/.cache/hostir/kernels") : std::string();
}

}  // namespace hir::codegen::gpu
