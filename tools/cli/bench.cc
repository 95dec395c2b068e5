// hostir bench.
#include <cstdio>

#include "csrc/base/quartiles.h"
#include "csrc/base/quoted.h"
#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/session.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

// Of each run, in milliseconds.
struct Samples {
  std::vector<double> request;  // From the request to its answer, here.
  std::vector<double> devices;  // From its turn to its end, as the daemon saw it.
};

Outcome RunOnce(ProgramSession& session, Samples* samples) {
  pb::RunReply reply;
  const base::Stopwatch watch;
  if (Outcome outcome = session.Run(&reply); !outcome.ok()) return outcome;
  if (samples != nullptr) {
    samples->request.push_back(watch.Ms());
    samples->devices.push_back(static_cast<double>(reply.run_us()) / 1e3);
  }
  std::vector<std::string> handles;
  for (const pb::Tensor& tensor : reply.outputs()) handles.push_back(tensor.handle());
  const Status freed = session.connection().client().Free(handles);
  return freed.ok() ? Outcome() : session.connection().Failed(freed, false);
}

std::vector<std::string> QuartileRow(const char* name, const std::vector<double>& values) {
  const base::Quartiles q = base::QuartilesOf(values);
  return {name, Short(q.low), Short(q.median), Short(q.high)};
}

std::string Text(ProgramSession& session, const Samples& samples, double first_ms) {
  const pb::SessionEvent& event = session.connection().client().session();
  return Cat(session.name(), " on ", Counted(event.num_devices(), event.device_kind() + " device"), " (",
             session.connection().where(), ")\nplan and compile ", Short(session.compile_ms()), " ms; put ",
             Bytes(session.upload_bytes()), " in ", Short(session.upload_ms()), " ms; first run ", Short(first_ms),
             " ms; then ", Counted(std::ssize(samples.request), "run"), "\n\n",
             Table({{"ms a run", "lower quartile", "median", "upper quartile"},
                    QuartileRow("request to answer", samples.request),
                    QuartileRow("on the devices", samples.devices)}));
}

std::string ListOf(const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(base::FormatDouble(value));
  return Cat("[", base::Join(texts, ", "), "]");
}

std::string Json(ProgramSession& session, const Samples& samples, double first_ms) {
  const pb::SessionEvent& event = session.connection().client().session();
  const base::Quartiles request = base::QuartilesOf(samples.request);
  const base::Quartiles devices = base::QuartilesOf(samples.devices);
  return Cat("{\n  \"program\": ", base::Quoted(session.name()),
             ",\n  \"device_kind\": ", base::Quoted(event.device_kind()), ",\n  \"num_devices\": ", event.num_devices(),
             ",\n  \"compile_ms\": ", session.compile_ms(), ",\n  \"upload_bytes\": ", session.upload_bytes(),
             ",\n  \"upload_ms\": ", session.upload_ms(), ",\n  \"first_run_ms\": ", first_ms,
             ",\n  \"request_quartiles_ms\": ", ListOf({request.low, request.median, request.high}),
             ",\n  \"devices_quartiles_ms\": ", ListOf({devices.low, devices.median, devices.high}),
             ",\n  \"request_ms\": ", ListOf(samples.request), ",\n  \"devices_ms\": ", ListOf(samples.devices),
             "\n}\n");
}

}  // namespace

Outcome BenchProgram(const Options& options) {
  Progress progress(options.progress);
  ProgramSession session;
  if (Outcome outcome = ProgramSession::Open(options, progress, &session); !outcome.ok()) return outcome;
  Samples first, samples;
  {
    // What is compiled for these sizes alone is compiled by the first run.
    const Progress::Stage stage(progress, Cat("first run of ", session.name()));
    if (Outcome outcome = RunOnce(session, &first); !outcome.ok()) return outcome;
  }
  {
    const Progress::Stage stage(progress, Cat("timing ", session.name()));
    for (int64_t i = 0; i < options.warmup + options.repeat; ++i) {
      if (Outcome outcome = RunOnce(session, i < options.warmup ? nullptr : &samples); !outcome.ok()) return outcome;
    }
  }
  const auto say = options.json ? &Json : &Text;
  std::fputs(say(session, samples, first.request.front()).c_str(), stdout);
  return {};
}

}  // namespace hir::cli
