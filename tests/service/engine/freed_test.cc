// Goal: who hears from the engine that a run, a download or a wait is over, and then frees its tensors, has freed their
// memory: nothing that is on its way out holds one a moment longer.
// Method: an engine of this process with two workers, whose callbacks free everything and look at what is left. Tensors
// are in the daemon's memory, and in memory of the workers' own.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "service/engine/engine.h"

namespace hir::service {
namespace {

constexpr const char* kDouble = R"(mesh @m = [0, 1]
fusion @double(%x: f32[i0] {mesh=@m, shard(0, mesh_x)}) {
  %y = add(%x, %x)
  return %y
}
)";

EngineOptions Options(bool own_memory) {
  EngineOptions options;
  options.limits = Resolved({}, {.memory_bytes = int64_t{1} << 30, .num_cpu_devices = 2});
  options.worker_path = HIR_WORKER;
  options.worker_args = {"--log-level=warn"};
  if (own_memory) options.worker_args.push_back("--own-memory");
  options.devices.own_memory = own_memory;
  for (int64_t ordinal = 0; ordinal < 2; ++ordinal) options.devices.used.push_back({.ordinal = ordinal});
  return options;
}

class Freed : public testing::TestWithParam<bool> {
 protected:
  Freed() : engine(Options(GetParam())) {
    HIR_CHECK(engine.Start().ok());
    session = *engine.OpenSession();
  }

  std::string Compile(const std::string& text) {
    ::hostir::v1::ProgramSource source;
    source.set_text(text);
    std::promise<std::string> id;
    engine.Compile(session, source, [&](const auto& program) {
      id.set_value(program.ok() ? (*program)->id() : program.status().ToString());
    });
    return id.get_future().get();
  }
  std::string Put() {
    TensorSpec spec = {.shape = {4}, .stored_once = {false}};
    spec.sharding = *mesh::FromDimensionForm({{2}, {0, 1}, {0}}, 1);
    auto upload = engine.BeginUpload(session, spec, {false}, "", -1);
    HIR_CHECK(upload.ok() && (*upload)->Expect(16).ok());
    (*upload)->Write(std::string(16, '\0'));
    return (*upload)->End()->handle;
  }
  // What is left of the tensors' bytes when these are freed.
  int64_t LeftWithout(const std::vector<std::string>& handles) {
    HIR_CHECK(engine.Free(session, handles).ok());
    return engine.report().tensor_bytes;
  }
  // Runs it; `over` is called when it is over, with the handle of its output.
  Engine::Accepted Run(const std::string& program, const std::string& x,
                       std::function<void(const std::string&)> over = {}) {
    struct Accepted {
      std::mutex mutex;
      std::string handle;
    };
    const auto shared = std::make_shared<Accepted>();
    Engine::RunRequest request = {.session = session, .program_id = program, .args = {x}};
    if (over) {
      request.done = [shared, over = std::move(over)](const Status& status, base::Nanos) {
        EXPECT_EQ(status.ToString(), "OK");
        const std::scoped_lock lock(shared->mutex);
        over(shared->handle);
      };
    }
    const std::scoped_lock lock(shared->mutex);
    Result<Engine::Accepted> accepted = engine.Run(std::move(request));
    HIR_CHECK(accepted.ok());
    shared->handle = accepted->outputs.at(0).handle;
    accepted->outputs.at(0).tensor = nullptr;
    return *std::move(accepted);
  }
  // What is left when `handle` was downloaded and all of `freed` is freed.
  std::future<int64_t> LeftAfterDownload(const std::string& handle, const std::vector<std::string>& freed) {
    auto left = std::make_shared<std::promise<int64_t>>();
    engine.BeginDownload(session, handle, std::nullopt, subscriptions,
                         [this, freed, left](Result<std::unique_ptr<Download>> download) {
                           if (download.ok()) *download = nullptr;
                           left->set_value(LeftWithout(freed));
                         });
    return left->get_future();
  }

  Subscriptions subscriptions;
  Engine engine;
  std::string session;
};

TEST_P(Freed, WhenADownloadBegins) {
  const std::string program = Compile(kDouble);
  std::string x = Put();
  EXPECT_EQ(LeftAfterDownload(x, {x}).get(), 0) << "of what was uploaded";
  x = Put();
  std::string y = Run(program, x).outputs.at(0).handle;
  EXPECT_EQ(LeftAfterDownload(y, {x, y}).get(), 0) << "of what a run has just begun to make";
  x = Put();
  std::promise<void> over;
  y = Run(program, x, [&](const std::string&) { over.set_value(); }).outputs.at(0).handle;
  over.get_future().wait();
  EXPECT_EQ(LeftAfterDownload(y, {x, y}).get(), 0) << "of what a run has made";
}

TEST_P(Freed, WhenARunIsPlanned) {
  const std::string program = Compile(kDouble);
  const std::string x = Put();
  std::promise<int64_t> left;
  engine.WhenPlanned({.session = session, .program_id = program, .args = {x}}, [&](const Status& status) {
    EXPECT_EQ(status.ToString(), "OK");
    left.set_value(LeftWithout({x}));
  });
  EXPECT_EQ(left.get_future().get(), 0);
}

TEST_P(Freed, WhenARunIsOver) {
  const std::string program = Compile(kDouble);
  for (int round = 0; round < 20; ++round) {
    const std::string x = Put();
    std::promise<int64_t> left;
    Run(program, x, [&](const std::string& y) { left.set_value(LeftWithout({x, y})); });
    EXPECT_EQ(left.get_future().get(), 0);
  }
}

TEST_P(Freed, WhenAWaitIsOver) {
  const std::string program = Compile(kDouble);
  for (int round = 0; round < 20; ++round) {
    const std::string x = Put();
    const std::string y = Run(program, x).outputs.at(0).handle;
    std::promise<int64_t> left;
    // Not by an initializer list, which would hold them longer than the call does.
    std::vector<std::shared_ptr<Tensor>> awaited;
    for (const std::string& handle : {y, x}) awaited.push_back(*engine.Find(session, handle));
    engine.WhenSettled(std::move(awaited), subscriptions, [&] { left.set_value(LeftWithout({x, y})); });
    EXPECT_EQ(left.get_future().get(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(OwnMemory, Freed, testing::Bool());

}  // namespace
}  // namespace hir::service
