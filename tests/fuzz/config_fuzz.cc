// Fuzz target: any bytes as a configuration file, as environment and as flags of the daemon. What resolves without
// fault is within the limits' ranges, and as a file says the same.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "service/config/config.h"
#include "tests/fuzz/mutate_bytes.h"
#include "tests/fuzz/mutate_text.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {
namespace {

// The file that every input is written to, in memory.
const std::string& PathOf(std::string_view text) {
  static const int fd = memfd_create("config", MFD_CLOEXEC);
  static const std::string path = base::Cat("/proc/self/fd/", fd);
  HIR_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, text.data(), text.size(), 0) == std::ssize(text));
  return path;
}

// As the daemon sets them, where they depend on the machine.
service::Config Defaults() {
  service::Config config;
  config.listen = "unix:/tmp/hostir";
  config.worker = "/bin/true";
  return config;
}

service::Resolution ResolutionOf(std::string_view text, std::vector<std::string>& faults) {
  const std::vector<service::Given> given = service::FromFile(PathOf(text), faults);
  return service::Resolve(Defaults(), {&given, 1});
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {"", "# nothing\n", "devices = \"cpu:4\"\nqueued_runs_max = 7\nown_memory = true\n",
                                    "queued_runs_max = 0x10\n[table]\nx = 1979-05-27T07:32:00Z\n",
                                    "a.b = [1, {c = 'd', e = \"\"\"f\"\"\"}]\n\"quoted key\" = inf\n"};
  seeds.push_back(service::Resolve(Defaults(), {}).ToString());
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<std::string> seeds = Seeds();
  if (input.empty() || prng.OneIn(3)) return MutateBytes(prng, input);
  return MutateText(prng, input, seeds[static_cast<size_t>(prng.Below(std::ssize(seeds) - 1)) + 1]);
}

void RunOne(std::string_view text) {
  // toml++ 3 takes a letter beyond ASCII, outside of quotes and comments, for what it says cannot be reached.
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) return;
  std::vector<std::string> faults;
  const service::Resolution resolved = ResolutionOf(text, faults);
  if (text.size() < 4096) {
    const std::string variable(text);
    const char* const environment[] = {variable.c_str(), nullptr};
    std::vector<std::string> others;
    const std::vector<service::Given> given = service::FromEnvironment(environment, others);
    (void)service::Resolve(Defaults(), {&given, 1});
  }
  if (!faults.empty() || !resolved.faults.empty()) return;
  for (const service::LimitInfo& limit : service::kLimits) {
    const int64_t value = resolved.config.limits.*limit.value;
    if (value < limit.least || value > limit.most) Found(base::Cat(limit.name, " = ", value));
  }
  const std::string written = resolved.ToString();
  const service::Resolution again = ResolutionOf(written, faults);
  if (!faults.empty() || !again.faults.empty()) {
    Found(base::Cat(base::Join(faults, "; "), base::Join(again.faults, "; "), "\n", written));
  }
  for (const service::Setting& setting : service::Settings()) {
    if (setting.ValueIn(resolved.config) != setting.ValueIn(again.config))
      Found(base::Cat(setting.key, ": ", setting.ValueIn(resolved.config), ", ", setting.ValueIn(again.config)));
  }
}

}  // namespace hir::fuzz
