// hostir replay.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/text.h"
#include "service/convert/tensor.h"
#include "service/supervise/child_error.h"
#include "tools/arrays/npy.h"
#include "tools/cli/commands.h"
#include "tools/cli/outputs.h"
#include "tools/cli/session.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// A folder that goes with it.
class Scratch {
 public:
  Scratch() {
    std::string path = (std::filesystem::temp_directory_path() / "hostir-replay-XXXXXX").string();
    if (mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }  // Empty: there is none.

 private:
  std::string path_;
};

double ElementAt(const std::byte* data, int64_t index, DType dtype) {
  const auto read = [&](auto value) {
    std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(value)), sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return read(uint8_t{});
    case DType::kInt8: return read(int8_t{});
    case DType::kInt32: return read(int32_t{});
    case DType::kInt64: return static_cast<double>(read(int64_t{}));
    case DType::kFloat16: return Float16ToFloat(read(uint16_t{}));
    case DType::kBFloat16: return BFloat16ToFloat(read(uint16_t{}));
    case DType::kFloat32: return read(float{});
    case DType::kFloat64: return read(double{});
  }
  return 0;
}

// How `now` differs from `then`: of both the whole array, of `dtype`.
struct Difference {
  int64_t elements = 0;  // That are not the same bytes.
  double largest = 0;    // Of those, the most; infinite for NaN against a number.
  double magnitude = 0;  // The largest that was recorded.
  std::string ToString(int64_t all) const {
    if (elements == 0) return "equal";
    return Cat(elements, " of ", all, " elements differ, by at most ", base::FormatDouble(largest),
               " where the largest is ", base::FormatDouble(magnitude));
  }
};

Difference Compare(const std::byte* then, const std::byte* now, int64_t count, DType dtype) {
  Difference difference;
  const auto bytes = static_cast<size_t>(DTypeBytes(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const double was = ElementAt(then, i, dtype);
    if (std::isfinite(was)) difference.magnitude = std::max(difference.magnitude, std::abs(was));
    const auto at = static_cast<size_t>(i) * bytes;
    if (std::memcmp(then + at, now + at, bytes) == 0) continue;
    const double is = ElementAt(now, i, dtype);
    if (std::isnan(was) && std::isnan(is)) continue;
    ++difference.elements;
    const double by = std::abs(is - was);
    difference.largest = std::isnan(by) ? INFINITY : std::max(difference.largest, by);
  }
  return difference;
}

// One line about output `index`. `agrees`: it is within `tolerance` of the largest recorded element.
Result<std::string> CompareOutput(const pb::PlanParam& output, const std::string& recorded, const std::string& path,
                                  double tolerance, bool* agrees) {
  HIR_ASSIGN(const DType dtype, service::FromProto(output.dtype()));
  HIR_ASSIGN(const arrays::NpyFile then, arrays::NpyFile::Open(recorded));
  HIR_ASSIGN(const arrays::NpyFile now, arrays::NpyFile::Open(path));
  if (then.header().shape != now.header().shape || !arrays::Holds(then.header().descr, dtype)) {
    *agrees = false;
    return Cat("recorded as ", then.header().descr, " of shape [", base::JoinInts(then.header().shape, ", "), "], now ",
               now.header().descr, " of shape [", base::JoinInts(now.header().shape, ", "), "]");
  }
  int64_t count = 1;
  for (const int64_t extent : then.header().shape) count *= extent;
  const Difference difference = Compare(then.data(), now.data(), count, dtype);
  *agrees = difference.elements == 0 || difference.largest <= tolerance * difference.magnitude;
  return difference.ToString(count);
}

}  // namespace

Outcome ReplayRun(const Options& given) {
  const std::string folder = given.program;
  const Result<pb::Recording> recording = ReadRecording(folder + "/run.pb");
  if (!recording.ok()) return Usage(recording.status());
  Options options = given;
  options.program = folder + "/run.pb";
  options.in = folder + "/in";
  if (options.address.empty() && options.devices.empty())
    options.devices = Cat("cpu:", std::max<int64_t>(1, recording->num_devices()));
  std::optional<Scratch> scratch;
  if (options.out.empty()) options.out = scratch.emplace().path();
  if (options.out.empty()) return Usage(Unavailable("cannot make a folder for the outputs; name one by --out"));

  std::string text = Cat("recorded by hostir ", recording->version(), " on ",
                         Counted(recording->num_devices(), recording->device_kind() + " device"));
  const Status failure = service::FromError(recording->error());
  base::Append(text, failure.ok() ? "\n" : Cat(", where it failed: ", failure.ToString(), "\n"));
  std::fputs(text.c_str(), stdout);
  Progress progress(options.progress);
  ProgramSession session;
  if (Outcome outcome = ProgramSession::Open(options, progress, &session); !outcome.ok()) return outcome;
  pb::RunReply reply;
  if (Outcome outcome = session.Run(&reply); !outcome.ok()) return outcome;
  std::vector<std::string> paths;
  if (Outcome outcome = FetchOutputs(session, options.out, reply, progress, &paths); !outcome.ok()) return outcome;
  text = Cat("replayed on ", session.connection().where(), " in ", Short(static_cast<double>(reply.run_us()) / 1e3),
             " ms on the devices\n");
  bool all_agree = true;
  for (int i = 0; i < reply.outputs_size(); ++i) {
    const pb::PlanParam& output = session.compiled().outputs(i);
    base::Append(text, "output %", output.name(), ": ", output.type(), ": ");
    if (!failure.ok()) {
      text += "made\n";
      continue;
    }
    bool agrees = false;
    const Result<std::string> difference = CompareOutput(output, Cat(folder, "/out/", output.name(), ".npy"),
                                                         paths[static_cast<size_t>(i)], options.tolerance, &agrees);
    if (!difference.ok()) return Usage(difference.status());
    all_agree = all_agree && agrees;
    base::Append(text, *difference, "\n");
  }
  std::fputs(text.c_str(), stdout);
  if (all_agree) return {};
  return {Status(Code::kDataLoss, Cat("outputs differ by more than --tolerance ", base::FormatDouble(options.tolerance),
                                      " of their largest element"))};
}

}  // namespace hir::cli
