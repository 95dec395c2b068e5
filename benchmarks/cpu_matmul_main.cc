// Matrix products by csrc/codegen/library on a host stream, beside oneDNN called directly with the
// same layouts and threads: `cpu_matmul [PAIRS]` prints JSON measurements for bench.py.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "benchmarks/measurement.h"
#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/onednn/onednn.h"
#include "csrc/device/host/host_device.h"

namespace hir::bench {
namespace {

// y[m, n] = x[m, k] times w[k, n], or for a linear w[n, k] transposed, plus the bias[n].
struct Case {
  std::string name;
  bool linear = false;
  DType dtype = DType::kFloat32;
  int64_t m = 0, n = 0, k = 0;

  double operations() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

std::vector<Case> Cases() {
  return {
      {"matmul f32 1024 x 1024 x 1024", false, DType::kFloat32, 1024, 1024, 1024},
      {"matmul bf16 1024 x 1024 x 1024", false, DType::kBFloat16, 1024, 1024, 1024},
      {"linear f32 512 x 2048 to 8192, bias", true, DType::kFloat32, 512, 8192, 2048},
      {"linear bf16 512 x 2048 to 8192, bias", true, DType::kBFloat16, 512, 8192, 2048},
  };
}

struct Matrix {
  std::vector<float> values;     // What the elements are.
  std::vector<std::byte> bytes;  // In the case's type.

  Matrix(int64_t count, DType dtype, base::Prng& prng)
      : values(static_cast<size_t>(count)), bytes(static_cast<size_t>(count * DTypeBytes(dtype))) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(RoundTo(dtype, prng.Unit() * 2 - 1));
      Set(i, dtype);
    }
  }
  void Set(size_t i, DType dtype) {
    if (dtype == DType::kFloat32) {
      reinterpret_cast<float*>(bytes.data())[i] = values[i];
    } else {
      reinterpret_cast<uint16_t*>(bytes.data())[i] = FloatToBFloat16(values[i]);
    }
  }
  double At(int64_t i, DType dtype) const {
    return dtype == DType::kFloat32 ? reinterpret_cast<const float*>(bytes.data())[i]
                                    : BFloat16ToFloat(reinterpret_cast<const uint16_t*>(bytes.data())[i]);
  }
};

struct Operands {
  Matrix x, w, bias, y;
  Operands(const Case& c, base::Prng& prng)
      : x(c.m * c.k, c.dtype, prng),
        w(c.k * c.n, c.dtype, prng),
        bias(c.n, c.dtype, prng),
        y(c.m * c.n, c.dtype, prng) {}
};

// A sample of y beside sums in double.
Status Check(const Case& c, Operands& operands) {
  const double tolerance = c.dtype == DType::kFloat32 ? 1e-4 : 1e-2;
  base::Prng prng(5);
  for (int sample = 0; sample < 200; ++sample) {
    const int64_t i = prng.Below(c.m), j = prng.Below(c.n);
    double sum = c.linear ? operands.bias.values[static_cast<size_t>(j)] : 0.0;
    for (int64_t k = 0; k < c.k; ++k) {
      const double w = operands.w.values[static_cast<size_t>(c.linear ? j * c.k + k : k * c.n + j)];
      sum += operands.x.values[static_cast<size_t>(i * c.k + k)] * w;
    }
    const double got = operands.y.At(i * c.n + j, c.dtype);
    const double scale = std::sqrt(static_cast<double>(c.k));
    if (std::fabs(got - sum) > tolerance * scale) {
      return Internal(base::Cat("element ", i, ", ", j, " is ", got, ", not ", sum));
    }
  }
  std::fill(operands.y.bytes.begin(), operands.y.bytes.end(), std::byte{0x7b});
  return {};
}

codegen::library::ProductDesc DescOf(const Case& c) {
  const auto tensor = [&](std::vector<int64_t> shape) {
    const std::vector<int64_t> strides =
        shape.size() == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{shape[1], 1};
    return codegen::library::Tensor{c.dtype, std::move(shape), strides};
  };
  if (!c.linear) return {"matmul", {tensor({c.m, c.k}), tensor({c.k, c.n})}, tensor({c.m, c.n})};
  return {"linear", {tensor({c.m, c.k}), tensor({c.n, c.k}), tensor({c.n})}, tensor({c.m, c.n})};
}

// The peer: one primitive, made once.
class Direct {
 public:
  Direct(const Case& c, Operands& operands) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Tag = dnnl::memory::format_tag;
    const auto type = c.dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
    const dnnl::memory::desc x({c.m, c.k}, type, Tag::ab), w({c.k, c.n}, type, c.linear ? Tag::ba : Tag::ab),
        bias({1, c.n}, type, Tag::ab), y({c.m, c.n}, type, Tag::ab);
    const auto desc = c.linear ? dnnl::matmul::desc(x, w, bias, y) : dnnl::matmul::desc(x, w, y);
    primitive_ = dnnl::matmul(dnnl::matmul::primitive_desc(desc, engine_));
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(x, engine_, operands.x.bytes.data())},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(w, engine_, operands.w.bytes.data())},
                  {DNNL_ARG_DST, dnnl::memory(y, engine_, operands.y.bytes.data())}};
    if (c.linear) arguments_.emplace(DNNL_ARG_BIAS, dnnl::memory(bias, engine_, operands.bias.bytes.data()));
  }
  void Run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// The library's threads look for more work for a while after a call: the next one, of another
// thread, would share cores with them.
void LetThreadsRest() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

Result<Measurement> MeasureCase(const Case& c, int pairs, int threads) {
  base::Prng prng(11);
  Operands operands(c, prng);
  HIR_ASSIGN(auto device, device::CreateHostDevice({.num_threads = 1}));
  HIR_ASSIGN(auto stream, device->CreateStream());
  HIR_ASSIGN(const auto call, codegen::library::Make(DescOf(c), {.num_threads = threads}));
  std::vector<const std::byte*> inputs = {operands.x.bytes.data(), operands.w.bytes.data()};
  if (c.linear) inputs.push_back(operands.bias.bytes.data());
  const auto run = [&] {
    stream->HostCallback([&] {
      std::byte* const outputs[] = {operands.y.bytes.data()};
      call->Run(inputs, outputs);
      return Status();
    });
    return stream->Synchronize(std::chrono::seconds(60));
  };
  Direct direct(c, operands);
  HIR_TRY(run());
  HIR_TRY(Check(c, operands));
  direct.Run();
  HIR_TRY(Check(c, operands).WithContext("oneDNN"));
  Measurement row{.name = c.name, .unit = "GF/s", .peer = "oneDNN", .higher_is_better = true};
  for (int i = 0; i < pairs; ++i) {
    Status status;
    LetThreadsRest();
    row.ours.push_back(c.operations() / Seconds([&] { status = run(); }) / 1e9);
    HIR_TRY(status);
    LetThreadsRest();
    row.theirs.push_back(c.operations() / Seconds([&] { direct.Run(); }) / 1e9);
  }
  return row;
}

Status MeasureAll(int pairs) {
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<Measurement> rows;
  for (const Case& c : Cases()) {
    auto row = MeasureCase(c, pairs, threads);
    if (!row.ok()) return row.status().WithContext(c.name);
    rows.push_back(std::move(*row));
  }
  PrintJson(rows);
  return {};
}

}  // namespace
}  // namespace hir::bench

int main(int argc, char** argv) {
  const hir::Status status = hir::bench::MeasureAll(argc > 1 ? std::max(1, std::atoi(argv[1])) : 15);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
