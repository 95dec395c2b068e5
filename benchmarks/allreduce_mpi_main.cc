// The peer of allreduce_ucx: MPI_Allreduce of f32 sums under mpirun, timed and bound the same way. Prints
// one line on rank 0: the microseconds of one all-reduce, the mean of REPEATS in a row.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "benchmarks/bind_rank.h"
#include "benchmarks/payload.h"

int main(int argc, char** argv) {
  // Before MPI makes its thread; Open MPI says by this who the process is.
  const char* rank_text = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* size_text = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (rank_text == nullptr || size_text == nullptr) {
    std::fprintf(stderr, "start it by Open MPI's mpirun\n");
    return 2;
  }
  const hir::Status bound = hir::bench::BindRank(std::atoll(rank_text), std::atoll(size_text));
  if (!bound.ok()) {
    std::fprintf(stderr, "%s\n", bound.ToString().c_str());
    return 1;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const hir::bench::AllreduceArgs args = hir::bench::ParseAllreduceArgs(argc, argv);
  const std::vector<float> source = hir::bench::RandomFloats(args.count, static_cast<uint64_t>(rank));
  std::vector<float> sum(source.size());
  const double warm_up_started = MPI_Wtime();
  float going_on = 0;
  do {
    going_on = rank == 0 && MPI_Wtime() - warm_up_started < hir::bench::kWarmUpSeconds ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &going_on, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } while (going_on > 0);
  double started = 0;
  for (int i = 0; i < args.repeats + 1; ++i) {
    MPI_Allreduce(source.data(), sum.data(), static_cast<int>(args.count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i == 0) started = MPI_Wtime();
  }
  const double micros = (MPI_Wtime() - started) * 1e6 / args.repeats;
  const bool right = hir::bench::IsSumOfRandomFloats(sum, size);
  if (rank == 0) std::printf("%.3f\n", micros);
  MPI_Finalize();
  return right ? 0 : 1;
}
