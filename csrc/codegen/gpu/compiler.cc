// From a plan to an artifact, and the caches.
#include <algorithm>
#include <thread>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/codegen/gpu/prelude.h"

namespace hir::codegen::gpu {

using base::Append;
using base::Cat;

namespace {

constexpr std::string_view kMagic = "hostir-gpu-3";
constexpr int kOldest = 80;

// Lines: magic, architecture, number of kernels, then of each its numbers and its cubin's bytes; the cubins.
std::string Pack(const Code& code) {
  std::string out = Cat(kMagic, "\n", code.architecture, "\n", code.kernels.size(), "\n");
  for (size_t i = 0; i < code.kernels.size(); ++i) {
    const KernelInfo& info = code.kernels[i];
    Append(out, info.threads, "\n", info.ctas_per_sm, "\n", info.items_per_cta, "\n", info.shared_bytes, "\n",
           info.dependent ? 1 : 0, "\n", info.num_slots, "\n", code.registers[i], "\n", code.spill_bytes[i], "\n",
           code.caps[i], "\n", code.schedules[i], "\n", code.cubins[i].size(), "\n");
  }
  return out + base::Join(code.cubins, "");
}

constexpr int kSpilledMuch = 128;  // Bytes of a thread: 32 registers.

// Kernel `index`, alone.
Result<Code> BuildOnce(const Source& source, size_t index, int architecture) {
  HIR_ASSIGN(Compiled compiled, CompileCuda(Cat(source.prelude, source.parts[index]), architecture));
  const Resources resources = ResourcesOf(compiled.log, Cat("k", index));
  return Code{.architecture = architecture,
              .kernels = {source.kernels[index]},
              .registers = {resources.registers},
              .spill_bytes = {resources.spill_bytes},
              .caps = {source.caps[index]},
              .schedules = {DescribeSchedule(source, index)},
              .cubins = {std::move(compiled.cubin)}};
}

// The same. A cap that makes registers spill costs more than the occupancy it buys: one CTA less, or, where much
// spills, half of them, and again: each attempt takes as long as the first.
Result<Code> Build(const KernelPlan& plan, Source source, std::span<const Tuning> tunings, size_t index,
                   int architecture) {
  while (true) {
    HIR_ASSIGN(Code code, BuildOnce(source, index, architecture));
    if (code.spill_bytes[0] == 0 || source.caps[index] == 1) return code;
    std::vector<int> caps = source.caps;
    caps[index] = code.spill_bytes[0] > kSpilledMuch ? caps[index] / 2 : caps[index] - 1;
    HIR_ASSIGN(source, EmitCuda(plan, caps, tunings));
  }
}

Status CheckArchitecture(int architecture) {
  if (architecture >= kOldest) return {};
  return Unimplemented(Cat("kernels for compute capability ", architecture / 10, ".", architecture % 10,
                           ": the oldest is ", kOldest / 10, ".", kOldest % 10));
}

void Add(Code& all, Code one) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(all.kernels, one.kernels);
  append(all.registers, one.registers);
  append(all.spill_bytes, one.spill_bytes);
  append(all.caps, one.caps);
  append(all.schedules, one.schedules);
  append(all.cubins, one.cubins);
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
  const int64_t count = number(0, kLaunchesMax);
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

Status WarmCompiler() {
  const std::string text = Cat(kIntrinsics, kPrelude, "struct Args {};\nKERNEL(k0, 32, 1) {}\n");
  return CompileCuda(text, Compiler::Options().architecture).status();
}

Result<Artifact> Compiler::Compile(const KernelPlan& plan, std::span<const Tuning> tunings) {
  std::vector<std::string> names;
  for (const Launch& launch : plan.launches) names.push_back(launch.kernel);
  const int architecture = plan.target.architecture > 0 ? plan.target.architecture : options_.architecture;
  HIR_TRY(CheckArchitecture(architecture));
  HIR_ASSIGN(const Source source, EmitCuda(plan, {}, tunings));
  return Compile(source, std::move(names), architecture,
                 [&](size_t index) { return Build(plan, source, tunings, index, architecture); });
}

Result<Artifact> Compiler::Compile(const Source& source, std::span<const std::string> names, int architecture) {
  HIR_TRY(CheckArchitecture(architecture));
  return Compile(source, {names.begin(), names.end()}, architecture,
                 [&](size_t index) { return BuildOnce(source, index, architecture); });
}

Result<Artifact> Compiler::Compile(const Source& source, std::vector<std::string> names, int architecture,
                                   const BuildFn& build) {
  Artifact artifact = {.bytes = {}, .kernels = std::move(names)};
  // All that makes a cubin: what comes from another compiler has another key.
  const auto key_of = [&](const std::string& compiler, size_t index) {
    return Cat("sm_", architecture, " ", kNvrtcOptions, " nvrtc ", compiler, "\n", source.prelude, source.parts[index]);
  };
  HIR_ASSIGN(const std::string compiler, NvrtcIdentity());
  std::vector<Result<std::string>> kernels(source.parts.size(), Internal("not compiled"));
  const auto compile = [&](size_t i) -> Result<std::string> {
    HIR_ASSIGN(const Code code, build(i));
    std::string bytes = Pack(code);
    // Another than was found first, when that could not be loaded.
    HIR_ASSIGN(const std::string loaded, NvrtcIdentity());
    const std::string key = key_of(loaded, i);
    disk_.Write(key, bytes);
    Keep(key, bytes, num_compiled_);
    return bytes;
  };
  std::vector<size_t> missing;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (auto known = Find(key_of(compiler, i))) {
      kernels[i] = *std::move(known);
    } else {
      missing.push_back(i);
    }
  }
  {
    std::vector<std::jthread> others;
    for (size_t k = 1; k < missing.size(); ++k) others.emplace_back([&, i = missing[k]] { kernels[i] = compile(i); });
    if (!missing.empty()) kernels[missing[0]] = compile(missing[0]);
  }
  Code code = {.architecture = architecture,
               .kernels = {},
               .registers = {},
               .spill_bytes = {},
               .caps = {},
               .schedules = {},
               .cubins = {}};
  for (const Result<std::string>& kernel : kernels) {
    HIR_TRY(kernel.status());
    HIR_ASSIGN(Code own, Unpack(*kernel));
    Add(code, std::move(own));
  }
  artifact.bytes = Pack(code);
  return artifact;
}

std::optional<std::string> Compiler::Find(const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = cache_.find(key);
    if (found != cache_.end()) return found->second;
  }
  std::optional<std::string> bytes = disk_.Read(key);
  if (!bytes) return std::nullopt;
  const Result<Code> code = Unpack(*bytes);
  if (!code.ok() || code->kernels.size() != 1) return std::nullopt;
  Keep(key, *bytes, num_from_disk_);
  return bytes;
}

void Compiler::Keep(const std::string& key, const std::string& bytes, int64_t& counter) {
  const std::lock_guard lock(mutex_);
  ++counter;
  if (cache_.size() >= options_.cached_kernels_max) cache_.clear();
  cache_.emplace(key, bytes);
}

int64_t Compiler::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

int64_t Compiler::num_from_disk() const {
  const std::lock_guard lock(mutex_);
  return num_from_disk_;
}

}  // namespace hir::codegen::gpu
