#include "csrc/codegen/cpu/artifact.h"

#include <optional>

#include "csrc/base/text.h"
#include "csrc/codegen/codegen.h"

namespace hir::codegen::cpu {

namespace {
constexpr std::string_view kArtifactMagic = "hostir-cpu-2";
}  // namespace

// Lines: magic, cpu, features, vector bytes, number of kernels, a grain and the bytes of an object each, then the
// objects to the end. REQUIRES: as many objects as grains.
std::string Pack(const Code& code) {
  std::string out = base::Cat(kArtifactMagic, "\n", code.target.cpu, "\n", code.target.features, "\n",
                              code.target.vector_bytes, "\n", code.grains.size(), "\n");
  for (size_t i = 0; i < code.grains.size(); ++i) base::Append(out, code.grains[i], "\n", code.objects[i].size(), "\n");
  for (const std::string& object : code.objects) out += object;
  return out;
}

Result<Code> Unpack(std::string_view bytes) {
  const auto line = [&]() -> std::optional<std::string_view> {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    return text;
  };
  const auto number = [&](int64_t low, int64_t high) -> std::optional<int64_t> {
    const auto text = line();
    const auto value = text ? base::ParseInt(*text) : std::nullopt;
    return value && *value >= low && *value <= high ? value : std::nullopt;
  };
  const Status bad = InvalidArgument("these bytes are no CPU kernels of this version");
  if (line() != kArtifactMagic) return bad;
  Code code;
  const auto cpu = line();
  const auto features = line();
  const auto vector_bytes = number(1, 1024);
  const auto count = number(0, kLaunchesMax);
  if (!cpu || !features || !vector_bytes || !count) return bad;
  code.target = {
      .cpu = std::string(*cpu), .features = std::string(*features), .vector_bytes = static_cast<int>(*vector_bytes)};
  std::vector<size_t> sizes;
  for (int64_t i = 0; i < *count; ++i) {
    const auto grain = number(1, INT64_MAX);
    const auto size = number(0, INT64_MAX);
    if (!grain || !size) return bad;
    code.grains.push_back(*grain);
    sizes.push_back(static_cast<size_t>(*size));
  }
  for (const size_t size : sizes) {
    if (size > bytes.size()) return bad;
    code.objects.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) return bad;
  return code;
}

}  // namespace hir::codegen::cpu
