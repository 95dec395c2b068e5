// hostir run.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "csrc/base/stopwatch.h"
#include "csrc/base/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/outputs.h"
#include "tools/cli/session.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

}  // namespace

Outcome RunProgram(const Options& options) {
  Progress progress(options.progress);
  ProgramSession session;
  if (Outcome outcome = ProgramSession::Open(options, progress, &session); !outcome.ok()) return outcome;
  pb::RunReply reply;
  const base::Stopwatch run_watch;
  {
    const Progress::Stage stage(progress, Cat("running ", session.name()));
    if (Outcome outcome = session.Run(&reply); !outcome.ok()) return outcome;
  }
  const double run_ms = run_watch.Ms();
  if (!options.timeline.empty()) {
    std::ofstream file(options.timeline, std::ios::binary);
    file << reply.timeline();
    if (!file.flush()) return Usage(Unavailable(Cat("cannot write ", options.timeline)));
  }
  std::vector<std::string> paths;
  const base::Stopwatch fetch_watch;
  if (!options.out.empty()) {
    if (Outcome outcome = FetchOutputs(session, options.out, reply, progress, &paths); !outcome.ok()) return outcome;
  }
  const pb::SessionEvent& event = session.connection().client().session();
  std::string text =
      Cat(session.name(), " on ", Counted(event.num_devices(), event.device_kind() + " device"), " (",
          session.connection().where(), ")\nplan and compile ", Short(session.compile_ms()), " ms; put ",
          Bytes(session.upload_bytes()), " in ", Short(session.upload_ms()), " ms; run ", reply.run_id(), " in ",
          Short(run_ms), " ms, ", Short(static_cast<double>(reply.run_us()) / 1e3), " ms of it on the devices");
  if (!paths.empty()) base::Append(text, "; get in ", Short(fetch_watch.Ms()), " ms");
  text += "\n";
  for (int i = 0; i < reply.outputs_size(); ++i) {
    const pb::PlanParam& output = session.compiled().outputs(i);
    base::Append(text, "output %", output.name(), ": ", output.type(),
                 paths.empty() ? "" : Cat(" -> ", paths[static_cast<size_t>(i)]), "\n");
  }
  if (!options.timeline.empty()) base::Append(text, "timeline -> ", options.timeline, "\n");
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace hir::cli
