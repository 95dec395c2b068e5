// Random sharded programs, and those of tests/corpus, on processes: values are those of the interpreter on the program
// as it was written. Run by mpirun.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "csrc/base/text.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/clone.h"
#include "tests/conformance/mpi/process_rank.h"
#include "tests/corpus/corpus.h"
#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"
#include "tests/property/sharded_programs.h"
#include "tools/eval/device_kind.h"

namespace hir::testing {
namespace {

using fusion::HostTensor;

std::vector<std::vector<int64_t>> MeshesOf(int64_t num_ranks) {
  std::vector<std::vector<int64_t>> meshes = {{num_ranks}};
  if (num_ranks == 4) meshes.insert(meshes.end(), {{2, 2}, {2, 2, 1}, {1, 2, 2}});
  if (num_ranks == 6) meshes.push_back({2, 3});
  if (num_ranks == 8) meshes.insert(meshes.end(), {{2, 4}, {2, 2, 2}});
  return meshes;
}

std::string Where(std::string_view comm, int64_t num_ranks) { return base::Cat(comm, ", ", num_ranks, " processes"); }

// `count` of each mesh: HOSTIR_SEEDS, HOSTIR_SEED. `streams`: with random stream axes.
void RunRandomPrograms(std::string_view comm, const rank::Backends& backends, uint64_t count, bool streams = false) {
  OnProcessRanks(backends, [&](const RankRunOptions& options, const codegen::Target& target) {
    uint64_t first = streams ? 100'000 : 10'000;
    for (const std::vector<int64_t>& mesh : MeshesOf(options.num_ranks)) {
      const Seeds seeds = SeedsFromEnvironment({.first = first, .count = count});
      first += 10'000;
      ShardedTally tally;
      StreamTally of_streams;
      for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
        auto made = MakeShardedProgram(seed, mesh, options.num_ranks, target, streams ? StreamsOf(seed) : 0);
        ASSERT_TRUE(made.ok()) << made.status().ToString();
        SCOPED_TRACE(made->program.Describe());
        const PartCheck check = [&](size_t output, const HostTensor& got, const HostTensor& want) {
          return Difference(got, want, made->program.tolerances[output]);
        };
        const Status status = CheckOnRanks(made->plan, made->program.inputs, made->expected, check, options);
        ASSERT_TRUE(status.ok()) << status.ToString();
        tally.Count(*made);
        of_streams.Add(made->streams);
      }
      if (comm::Ranks().rank() == 0) {
        std::cout << "mesh " << base::JoinInts(mesh, " x ") << ": "
                  << tally.Describe(Where(comm, options.num_ranks), seeds.first)
                  << (streams ? base::Cat("; ", of_streams.Describe()) : std::string()) << "\n";
      }
    }
  });
}

// Those whose meshes name as many devices as there are ranks, or fewer.
void RunCorpus(std::string_view comm, const rank::Backends& backends) {
  OnProcessRanks(backends, [&](const RankRunOptions& options, const codegen::Target& target) {
    int64_t programs = 0, communications = 0;
    for (const std::string& name : CorpusNames()) {
      SCOPED_TRACE(name);
      const auto program = ReadCorpus(name);
      ASSERT_TRUE(program.ok()) << program.status().ToString();
      if (program->num_devices > options.num_ranks) continue;
      const std::vector<HostTensor> inputs = DrawInputs(*program, 1);
      const auto want = fusion::Interpret(*program->graph, inputs);
      ASSERT_TRUE(want.ok()) << want.status().ToString();
      auto plan = host::PlanProgram(ir::Clone(*program->graph), {.num_devices = options.num_ranks, .target = target});
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      const PartCheck check = [&](size_t output, const HostTensor& got, const HostTensor& part) -> std::string {
        const double distance = DistanceOf(got, part), norm = NormOf((*want)[output]);
        if (distance <= ToleranceOf(part.dtype) * norm) return {};  // A NaN is not.
        return base::Cat("it is off by ", distance, " of ", norm);
      };
      const Status status = CheckOnRanks(*plan, inputs, *want, check, options);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ++programs;
      communications += std::ssize(plan->local.communications);
    }
    ASSERT_GT(programs, 0);
    if (comm::Ranks().rank() == 0) {
      std::cout << programs << " of " << CorpusNames().size() << " programs equal on " << Where(comm, options.num_ranks)
                << ", " << communications << " communications\n";
    }
  });
}

TEST(Ucx, RandomPrograms) { RunRandomPrograms("ucx", eval::CpuKind("ucx").backends, 15); }
TEST(Mpi, RandomPrograms) { RunRandomPrograms("mpi", eval::CpuKind("mpi").backends, 15); }
TEST(Nccl, RandomPrograms) { RunRandomPrograms("nccl", eval::CudaKind().backends, 15); }

TEST(Ucx, StreamPrograms) { RunRandomPrograms("ucx", eval::CpuKind("ucx").backends, 15, true); }
TEST(Mpi, StreamPrograms) { RunRandomPrograms("mpi", eval::CpuKind("mpi").backends, 15, true); }
TEST(Nccl, StreamPrograms) { RunRandomPrograms("nccl", eval::CudaKind().backends, 15, true); }

// On CPU ranks they run through hostir-eval: test_corpus.py.
TEST(Nccl, Corpus) { RunCorpus("nccl", eval::CudaKind().backends); }

}  // namespace
}  // namespace hir::testing
