#include "multidevice/comm/mpi/mpi.h"

#include <mpi.h>

#include <string>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/engine/engine_communicator.h"
#include "multidevice/comm/mpi/mpi_op.h"

namespace hir::comm {
namespace {

using base::Cat;

// Whether a buffer holds a chunk for each rank, or of each.
bool HasChunks(CommType type) {
  return type == CommType::kGather || type == CommType::kAllgather || type == CommType::kScatter ||
         type == CommType::kReduceScatter || type == CommType::kAllToAll;
}

class MpiCommunicator final : public EngineCommunicator {
 public:
  MpiCommunicator(const MpiOptions& options, Rendezvous& rendezvous)
      : EngineCommunicator(options.rank, options.size, options.op_timeout, std::make_unique<MpiTransport>()),
        options_(options),
        rendezvous_(rendezvous) {}

 private:
  Status CheckLimits(const CommDesc& desc, const TeamInfo& team) const override {
    const int64_t chunks = HasChunks(desc.type) ? team.size() : 1;
    if (desc.count <= kMpiElementsMax / chunks) return {};
    return ResourceExhausted(Cat(CommName(desc), ": a buffer of ", chunks, " x ", desc.count,
                                 " elements, limit mpi_elements_max: ", kMpiElementsMax,
                                 "; take a smaller tensor, or another backend"));
  }

  Result<std::unique_ptr<TransportTeam>> MakeTeam(std::span<const int64_t> ranks, int64_t lane, int64_t) override {
    HIR_TRY(Meet(ranks, lane));
    std::vector<int> members(ranks.begin(), ranks.end());
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group);
    auto team = std::make_unique<MpiTeam>();
    const int error = MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &team->comm);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    if (error != MPI_SUCCESS) return Unavailable("mpi: MPI_Comm_create_group failed");
    MPI_Comm_set_errhandler(team->comm, MPI_ERRORS_RETURN);
    return std::unique_ptr<TransportTeam>(std::move(team));
  }

  // MPI would wait for ever for a member that does not come.
  Status Meet(std::span<const int64_t> ranks, int64_t lane) {
    const std::string key = Cat("g", options_.generation, "/mpi/", base::JoinInts(ranks, ","), "/", lane, "/");
    HIR_TRY(rendezvous_.Publish(Cat(key, rank()), ""));
    const base::Nanos deadline = base::Clock::Steady().Now() + options_.setup_timeout;
    for (const int64_t peer : ranks) {
      const Result<std::string> came = rendezvous_.Get(Cat(key, peer), deadline - base::Clock::Steady().Now());
      if (!came.ok()) return came.status().WithContext(Cat("team [", base::JoinInts(ranks, ", "), "]: rank ", peer));
    }
    return {};
  }

  const MpiOptions options_;
  Rendezvous& rendezvous_;
};

}  // namespace

bool HasMpiCommunicator() { return true; }

Result<std::unique_ptr<Communicator>> CreateMpi(const MpiOptions& options, Rendezvous& rendezvous) {
  int threads = MPI_THREAD_SINGLE;
  MPI_Query_thread(&threads);
  if (threads != MPI_THREAD_MULTIPLE)
    return Unimplemented("mpi: this MPI was started without support for threads (MPI_THREAD_MULTIPLE)");
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (options.size < 1 || options.size > size)
    return InvalidArgument(Cat("mpi: size is ", options.size, "; mpirun started ", size, " ranks"));
  if (options.rank < 0 || options.rank >= options.size)
    return InvalidArgument(Cat("mpi: rank ", options.rank, " is not in [0, ", options.size, ")"));
  return std::make_unique<MpiCommunicator>(options, rendezvous);
}

}  // namespace hir::comm
