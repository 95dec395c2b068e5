#include "host_ir/predict/predict.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

using base::Cat;
using Sizes = std::map<std::string, int64_t>;

// The most steps that are followed of one rank, which takes tenths of a second.
constexpr size_t kFollowedMax = 1 << 15;

class Follower {
 public:
  Follower(const Sizes& sizes, const Rates& rates) : sizes_(sizes), rates_(rates) {}

  Status Follow(const Step& step) {
    if (step.cut)
      return Unimplemented(
          Cat("a loop makes more than ", kIterationsMax, " iterations, of which not all are followed"));
    symbols_ = step.symbols.get();
    if (step.stream == nullptr) return {};
    HIR_ASSIGN(const int64_t stream, Value(step.stream));
    double& ready = streams_[stream];
    const HostOp code = CodeOf(*step.op);
    if (code == HostOp::kRecord || code == HostOp::kWait) {
      HIR_ASSIGN(const int64_t index, Value(step.index));
      double& event = events_[{step.op->operands[0], index}];
      if (code == HostOp::kRecord) {
        event = ready;  // Waits are for the latest record, whatever stream it is of.
      } else {
        ready = std::max(ready, event);
      }
      return {};
    }
    const bool communicates = code == HostOp::kCommunication;
    if (communicates && step.accesses.empty()) return {};  // Of other ranks.
    HIR_ASSIGN(const double seconds, communicates ? OfCommunication(step) : OfWork(step, code));
    const bool on_link = communicates && rates_.multiprocessors > 0;
    double& free = on_link ? link_free_ : device_free_;
    const double began = std::max(ready, free);
    ready = free = began + seconds;
    (communicates ? done_.communication_seconds : done_.work_seconds) += seconds;
    done_.ops.push_back({step.op, stream, began, ready});
    return {};
  }

  Prediction Take(int64_t rank) {
    done_.rank = rank;
    for (const auto& [stream, ready] : streams_) done_.seconds = std::max(done_.seconds, ready);
    done_.seconds += rates_.run_seconds;
    return std::move(done_);
  }

 private:
  Result<int64_t> Value(const ir::Expr* expr) const {
    return ir::Evaluate(expr, [this](std::string_view symbol) -> std::optional<int64_t> {
      if (const auto size = sizes_.find(std::string(symbol)); size != sizes_.end()) return size->second;
      if (symbols_ == nullptr) return std::nullopt;
      const auto known = symbols_->find(symbol);
      const bool is_known = known != symbols_->end() && known->second->IsConst();
      return is_known ? std::optional(known->second->value) : std::nullopt;
    });
  }

  Result<double> ElementsOf(const Region& region) const {
    double elements = 1;
    for (const ViewAxis& axis : region.axes) {
      HIR_ASSIGN(const int64_t extent, Value(axis.extent));
      elements *= static_cast<double>(extent);
    }
    return elements;
  }

  static double BytesOfElement(const Step& step, const AccessedRegion& access) {
    return static_cast<double>(DTypeBytes(step.op->operands[static_cast<size_t>(access.operand)]->type->dtype));
  }

  // Read and written.
  Result<double> BytesOf(const Step& step) const {
    double bytes = 0;
    for (const AccessedRegion& access : step.accesses) {
      HIR_ASSIGN(const double elements, ElementsOf(access.region));
      bytes += elements * BytesOfElement(step, access) * (Reads(access.access) + Writes(access.access));
    }
    return bytes;
  }

  Result<double> OfWork(const Step& step, HostOp code) const {
    HIR_ASSIGN(const double bytes, BytesOf(step));
    if (bytes == 0) return 0;
    const double seconds = rates_.memory.Seconds(bytes);
    if (code == HostOp::kAttention) {
      HIR_ASSIGN(const double products, OfAttention(step));
      return std::max(products, seconds);
    }
    if (code == HostOp::kGroupedProduct) {
      HIR_ASSIGN(const double product, OfGroupedProduct(step));
      return std::max(product, seconds);
    }
    if (code != HostOp::kLibrary) return seconds;  // Sums by index, too, are a pass over memory.
    HIR_ASSIGN(const double product, OfProduct(step));
    return std::max(product, seconds);
  }

  Result<double> OfProduct(const Step& step) const {
    const Region* operands[2] = {};
    const Region* result = nullptr;
    for (const AccessedRegion& access : step.accesses) {
      if (access.operand < 2) operands[access.operand] = &access.region;
      result = &access.region;  // The last one.
    }
    if (operands[0] == nullptr || operands[0]->axes.empty() || result->axes.empty()) return 0;
    HIR_ASSIGN(const double elements, ElementsOf(*result));
    const size_t contracted = IsTransposed(*step.op, 0) ? 2 : 1;  // From behind.
    if (operands[0]->axes.size() < contracted) return 0;
    HIR_ASSIGN(const int64_t terms, Value((operands[0]->axes.end() - static_cast<ptrdiff_t>(contracted))->extent));
    HIR_ASSIGN(const int64_t columns, Value(result->axes.back().extent));
    if (elements == 0 || terms == 0) return 0;
    // A second operand without batches multiplies the rows of all matrices of the first as one matrix.
    double batches = 1;
    for (size_t i = 0; operands[1] != nullptr && i + 2 < operands[1]->axes.size(); ++i) {
      HIR_ASSIGN(const int64_t extent, Value(operands[1]->axes[i].extent));
      batches *= static_cast<double>(std::max<int64_t>(extent, 1));
    }
    const double rows = std::max(elements / static_cast<double>(columns) / batches, 1.0);
    HIR_ASSIGN(const Curve* const curve, ProductCurve(*step.op, step.op->Name("precision")));
    return curve->Seconds(2 * elements * static_cast<double>(terms)) /
           WaveShare(rates_.multiprocessors, batches, rows, static_cast<double>(columns));
  }

  // Its products, of blocks: half of them where it is causal.
  Result<double> OfAttention(const Step& step) const {
    const std::string_view results = step.op->Name("results");
    const bool is_gradient = step.op->Int("inputs") >= 6;
    const auto makes = [&](std::string_view result) {
      return (Cat(",", results, ",")).find(Cat(",", result, ",")) != std::string::npos;
    };
    // Scores, and the gradient of the weights.
    int64_t products = is_gradient && (makes("q") || makes("k")) ? 2 : 1;
    for (const std::string_view result : {"values", "q", "k", "v"}) products += makes(result) ? 1 : 0;
    const Region* query = nullptr;
    const Region* key = nullptr;
    const Region* result = nullptr;
    for (const AccessedRegion& access : step.accesses) {
      if (access.operand == 0) query = &access.region;
      if (access.operand == 1) key = &access.region;
      result = &access.region;  // The last one: it has all leading axes.
    }
    if (query == nullptr || key == nullptr || query->axes.size() < 2 || key->axes.size() < 2) return 0;
    const size_t own = results == "lse" || results == "values,lse" ? 1 : 2;
    if (result->axes.size() < own) return 0;
    double work = 2 * static_cast<double>(products);
    for (size_t k = 0; k + own < result->axes.size(); ++k) {
      HIR_ASSIGN(const int64_t extent, Value(result->axes[k].extent));
      work *= static_cast<double>(extent);
    }
    for (const ir::Expr* of :
         {query->axes.rbegin()[1].extent, query->axes.back().extent, key->axes.rbegin()[1].extent}) {
      HIR_ASSIGN(const int64_t extent, Value(of));
      work *= static_cast<double>(extent);
    }
    if (work == 0) return 0;
    HIR_ASSIGN(const Curve* const curve, ProductCurve(*step.op, "full"));
    return curve->Seconds(step.op->Bool("causal") ? work / 2 : work);
  }

  // As if each row had a group.
  Result<double> OfGroupedProduct(const Step& step) const {
    if (step.accesses.size() != step.op->operands.size()) return 0;
    const Region& rows = step.accesses.front().region;
    const Region& result = step.accesses.back().region;
    double work = 2;
    for (const ir::Expr* const of : {rows.axes[0].extent, rows.axes[1].extent, result.axes.back().extent}) {
      HIR_ASSIGN(const int64_t extent, Value(of));
      work *= static_cast<double>(extent);
    }
    if (work == 0) return 0;
    HIR_ASSIGN(const Curve* const curve, ProductCurve(*step.op, "full"));
    return curve->Seconds(work);
  }

  Result<const Curve*> ProductCurve(const ir::Op& op, std::string_view precision) const {
    const std::string_view dtype = DTypeName(op.operands[0]->type->dtype);
    const std::string_view names[] = {precision == "tf32" ? precision : dtype, dtype,
                                      dtype == "f16" ? std::string_view("bf16") : dtype};
    for (const std::string_view name : names) {
      const auto found = rates_.products.find(name);
      if (found != rates_.products.end()) return &found->second;
    }
    return Status(Code::kFailedPrecondition, Cat("the rates have no products of ", dtype));
  }

  // Those of one group start together: behind the first, only what they carry takes time.
  Result<double> OfCommunication(const Step& step) {
    double bytes = 0;
    for (const AccessedRegion& access : step.accesses) {
      HIR_ASSIGN(const double elements, ElementsOf(access.region));
      bytes = std::max(bytes, elements * BytesOfElement(step, access));
    }
    const bool by_copies = step.op->Name("by") == "copies";
    const std::string_view type = by_copies ? std::string_view("copies") : step.op->Name("type");
    auto found = rates_.communications.find(type);
    // Between two meshes, and from or to one rank: as what one rank sends another.
    if (found == rates_.communications.end()) found = rates_.communications.find("collective_permute");
    if (found == rates_.communications.end()) {
      return Status(Code::kFailedPrecondition,
                    Cat("the rates have no communications: measure with as many ranks (mpirun -n N hostir-eval "
                        "--calibrate FILE)"));
    }
    if (bytes == 0) return 0;
    const double seconds = found->second.Seconds(bytes);
    const bool first = step.group < 0 || step.group != std::exchange(group_, step.group);
    return first ? seconds : std::max(0.0, seconds - found->second.Seconds(0));
  }

  const Sizes& sizes_;
  const Rates& rates_;
  const Symbols* symbols_ = nullptr;
  std::map<int64_t, double> streams_;
  std::map<std::pair<const ir::Value*, int64_t>, double> events_;  // For lookups alone.
  double device_free_ = 0, link_free_ = 0;
  int group_ = -1;
  Prediction done_;
};

Result<Prediction> PredictRank(const ir::Graph& program, int64_t rank, const Sizes& sizes, const Rates& rates) {
  RankClass one = ClassOfOne(program, rank);
  ir::ExprPool pool;
  HIR_ASSIGN(std::vector<Step> steps, Unroll(program, one, pool));
  // Only loops whose iterations depend on sizes need those before: views of buffers that keep theirs may not be seen to
  // be contiguous then.
  const auto cut = static_cast<size_t>(std::ranges::count_if(steps, &Step::cut));
  if (steps.size() + cut * kIterationsMax > kFollowedMax)
    return Unimplemented(Cat("the host program has too many steps: more than ", kFollowedMax));
  if (cut > 0) {
    one.symbols.insert(one.symbols.end(), sizes.begin(), sizes.end());
    HIR_ASSIGN(steps, Unroll(program, one, pool));
  }
  Follower follower(sizes, rates);
  for (const Step& step : steps) HIR_TRY(follower.Follow(step));
  return follower.Take(rank);
}

}  // namespace

Result<Prediction> Predict(const ir::Graph& program, const Sizes& sizes, const Rates& rates) {
  int64_t devices = 1;
  for (const ir::Mesh& mesh : program.meshes()) devices = std::max<int64_t>(devices, std::ssize(mesh.mesh.devices()));
  bool communicates = false;
  ir::ForEachOp(program.body, [&](const ir::Op* op) { communicates |= CodeOf(*op) == HostOp::kCommunication; });
  if (communicates && devices > rates.ranks) {
    return Status(Code::kFailedPrecondition,
                  Cat("the rates are of ", rates.ranks, rates.ranks == 1 ? " rank" : " ranks", ", a mesh has ", devices,
                      " devices: measure with as many (mpirun -n ", devices, " hostir-eval --calibrate FILE)"));
  }
  Prediction slowest;
  for (const RankClass& alike : RankClasses(program)) {
    HIR_ASSIGN(Prediction prediction, PredictRank(program, alike.rank, sizes, rates));
    if (prediction.seconds > slowest.seconds) slowest = std::move(prediction);
  }
  return slowest;
}

}  // namespace hir::host
