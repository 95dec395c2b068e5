// Nests by hand, the cache, and what is refused.
#include <cmath>
#include <filesystem>
#include <thread>

#include "csrc/base/dtype.h"
#include "csrc/base/prng.h"
#include "csrc/codegen/cpu/artifact.h"
#include "tests/csrc/codegen/cache_directory.h"
#include "tests/csrc/codegen/cpu/hand_nest.h"

namespace hir::codegen::cpu {
namespace {

using fusion::Element;
using fusion::Prim;
using fusion::ReduceKind;

// out[i] = sum over j of x[i, j], rows in parallel; or out[j] = sum over i, columns together.
KernelPlan Sum(HandNest& hand, int64_t rows, int64_t columns, bool along_rows, const std::string& name = "k") {
  const ir::Value* x = hand.Add(Tensor::Role::kInput, DType::kFloat32, {hand.Const(rows), hand.Const(columns)});
  const ir::Value* out = hand.Add(Tensor::Role::kOutput, DType::kFloat32, {hand.Const(along_rows ? rows : columns)});
  const Element* index[] = {hand.At(0), hand.At(1)};
  const Element* kept[] = {hand.At(along_rows ? 0 : 1)};
  const ir::Value* total = &hand.nest->values.emplace_back(ir::Value{.type = out->type});
  Phase add, store;
  add.accumulators.push_back({total, ReduceKind::kSum, DType::kFloat32, hand.nest->elements.MakeLoad(x, index)});
  store.stores.push_back({1, {kept[0]}, hand.nest->elements.MakeLoad(total, kept)});
  Region region;
  if (along_rows) {
    region.grid = {hand.To(0, hand.Const(rows))};
    add.loops = {hand.To(1, hand.Const(columns))};
  } else {
    add.loops = {hand.To(0, hand.Const(rows))};
    region.columns = hand.To(1, hand.Const(columns));
    region.columns_max = columns;
  }
  region.phases = {std::move(add), std::move(store)};
  hand.nest->regions.push_back(std::move(region));
  return hand.Plan(name);
}

TEST(Cpu, SumsOfRowsAndOfColumns) {
  base::Prng prng(1);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {7, 16}, {16, 100}, {130, 67}}) {
    std::vector<float> x(static_cast<size_t>(rows * columns));
    for (float& value : x) value = static_cast<float>(prng.Between(-100, 100));
    for (const bool along_rows : {true, false}) {
      std::vector<float> want(static_cast<size_t>(along_rows ? rows : columns), 0);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          want[static_cast<size_t>(along_rows ? i : j)] += x[static_cast<size_t>(i * columns + j)];
        }
      }
      HandNest hand;
      std::vector<float> got(want.size() + 1, -1);
      RunPlan(Sum(hand, rows, columns, along_rows), {Address(x), Address(got)}, along_rows ? rows : 1, 2);
      EXPECT_EQ(got.back(), -1) << "written past its end";
      got.pop_back();
      EXPECT_EQ(got, want) << rows << " x " << columns;
    }
  }
}

// out[0] = the sum of x[j] * y[j], where a lane adds a product to its own negation, rounded: what rounding took away is
// left if products are added as they are, and nothing if they are rounded first.
TEST(Cpu, ProductsAreAddedUpUnrounded) {
  constexpr size_t kLanes = 256;  // A multiple of any target's, of all vectors side by side.
  const float a = 1 + 0x1p-12F, b = 1 + 0x1p-13F;
  const float product = a * b;
  const float lost = std::fma(a, b, -product);
  ASSERT_NE(lost, 0);
  std::vector<float> x(2 * kLanes), y(2 * kLanes, 1), out(1, -1);
  x[7] = -product;
  x[kLanes + 7] = a;
  y[kLanes + 7] = b;
  HandNest hand;
  const ir::Expr* count = hand.Const(2 * kLanes);
  const ir::Value* in[] = {hand.Add(Tensor::Role::kInput, DType::kFloat32, {count}),
                           hand.Add(Tensor::Role::kInput, DType::kFloat32, {count})};
  const ir::Value* sum = hand.Add(Tensor::Role::kOutput, DType::kFloat32, {});
  const ir::Value* total = &hand.nest->values.emplace_back(ir::Value{.type = sum->type});
  fusion::ElementBuilder& e = hand.nest->elements;
  const Element* index[] = {hand.At(0)};
  Phase add, store;
  add.loops = {hand.To(0, count)};
  add.accumulators.push_back({total, ReduceKind::kSum, DType::kFloat32,
                              e.Apply(Prim::kMul, {e.MakeLoad(in[0], index), e.MakeLoad(in[1], index)})});
  store.stores.push_back({2, {}, e.MakeLoad(total, {})});
  Region region;
  region.phases = {std::move(add), std::move(store)};
  hand.nest->regions.push_back(std::move(region));
  RunPlan(hand.Plan(), {Address(x), Address(y), Address(out)}, 1, 1);
  EXPECT_EQ(out[0], HostTarget().fma ? lost : 0);
}

// out[i, j] = x[j]: 64 MiB of it and more, which go past the caches where `offset` leaves addresses aligned.
TEST(Cpu, LargeOutputsAtAnyAddress) {
  const int64_t rows = 4099, columns = 4104;
  base::Prng prng(2);
  std::vector<float> x(static_cast<size_t>(columns));
  for (float& value : x) value = static_cast<float>(prng.Unit());
  HandNest hand;
  const ir::Expr* count = hand.nest->exprs.Symbol("i0");
  const ir::Value* in = hand.Add(Tensor::Role::kInput, DType::kFloat32, {hand.Const(columns)});
  hand.Add(Tensor::Role::kOutput, DType::kFloat32, {count, hand.Const(columns)});
  hand.nest->symbols = {"i0"};
  const Element* column = hand.At(1);
  Region region;
  region.grid = {hand.To(0, count)};
  region.columns = hand.To(1, hand.Const(columns));
  region.columns_max = columns;
  Phase phase;
  phase.stores.push_back({1, {hand.At(0), column}, hand.nest->elements.MakeLoad(in, std::span(&column, 1))});
  region.phases.push_back(std::move(phase));
  hand.nest->regions.push_back(std::move(region));
  const size_t size = static_cast<size_t>(rows * columns);
  for (const size_t offset : {size_t{0}, size_t{3}}) {
    std::vector<float> out(size + 32, -1);
    const size_t aligned = (64 - static_cast<size_t>(Address(out)) % 64) / 4 % 16;
    RunPlan(hand.Plan(), {Address(x), Address(out) + static_cast<int64_t>(aligned + offset) * 4, rows}, rows, 1000);
    int64_t faults = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t at = i - aligned - offset;
      const bool inside = i >= aligned + offset && at < size;
      if (out[i] != (inside ? x[at % static_cast<size_t>(columns)] : -1)) ++faults;
    }
    EXPECT_EQ(faults, 0) << "offset " << offset;
  }
}

// b[i, j] and f[i, j], bfloat16 and float32, of x and y: so many roundings that vectors are of four registers, and most
// of what it touches is bfloat16. 64 MiB go past the caches.
constexpr int kRoundings = 12;
float Rounded(float x) { return BFloat16ToFloat(FloatToBFloat16(x)); }

KernelPlan LongRows(HandNest& hand) {
  fusion::ElementBuilder& e = hand.nest->elements;
  const ir::Expr* rows = hand.nest->exprs.Symbol("i0");
  const ir::Expr* columns = hand.nest->exprs.Symbol("i1");
  const ir::Value* x = hand.Add(Tensor::Role::kInput, DType::kBFloat16, {rows, columns});
  const ir::Value* y = hand.Add(Tensor::Role::kInput, DType::kBFloat16, {rows, columns});
  hand.Add(Tensor::Role::kOutput, DType::kBFloat16, {rows, columns});
  hand.Add(Tensor::Role::kOutput, DType::kFloat32, {rows, columns});
  hand.nest->symbols = {"i0", "i1"};
  const Element* at[] = {hand.At(0), hand.At(1)};
  const Element* factor = e.Convert(DType::kFloat32, e.MakeLoad(y, at));
  const Element* value = e.Convert(DType::kFloat32, e.MakeLoad(x, at));
  for (int i = 0; i < kRoundings; ++i) {
    value = e.Convert(DType::kFloat32, e.Convert(DType::kBFloat16, e.Apply(Prim::kMul, {value, factor})));
  }
  const Element* sum = e.Apply(Prim::kAdd, {value, factor});
  Region region;
  region.grid = {hand.To(0, rows)};
  Phase phase;
  phase.loops = {hand.To(1, columns)};
  phase.stores.push_back({2, {at[0], at[1]}, e.Convert(DType::kBFloat16, sum)});
  phase.stores.push_back({3, {at[0], at[1]}, sum});
  region.phases.push_back(std::move(phase));
  hand.nest->regions.push_back(std::move(region));
  return hand.Plan();
}

TEST(Cpu, LongChainsOfAnyLengthAndAddress) {
  base::Prng prng(4);
  struct Size {
    int64_t rows, columns;
  };
  std::vector<Size> sizes = {{4099, 4103}};
  for (const int64_t columns : {1, 2, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100, 129}) sizes.push_back({3, columns});
  for (const auto& [rows, columns] : sizes) {
    const size_t count = static_cast<size_t>(rows * columns);
    std::vector<uint16_t> x(count), y(count), b(count + 1, 7);
    std::vector<float> f(count + 1, 7);
    for (size_t i = 0; i < count; ++i) {
      x[i] = FloatToBFloat16(static_cast<float>(prng.Unit()) - 0.5F);
      y[i] = FloatToBFloat16(static_cast<float>(prng.Unit()) + 0.5F);
    }
    HandNest hand;
    RunPlan(LongRows(hand), {Address(x), Address(y), Address(b), Address(f), rows, columns}, rows, 1000);
    EXPECT_EQ(b.back(), 7) << "written past its end";
    EXPECT_EQ(f.back(), 7) << "written past its end";
    int64_t faults = 0;
    for (size_t i = 0; i<count; i += rows> 3 ? 61 : 1) {
      const float factor = BFloat16ToFloat(y[i]);
      float value = BFloat16ToFloat(x[i]);
      for (int k = 0; k < kRoundings; ++k) value = Rounded(value * factor);
      const float sum = value + factor;
      faults += b[i] != FloatToBFloat16(sum) || f[i] != sum ? 1 : 0;
    }
    EXPECT_EQ(faults, 0) << rows << " x " << columns;
  }
}

TEST(Cpu, LoadsBehindAConditionOnIndices) {
  // out[i] = 3 <= i < 8 ? x[i - 3] : 9, where x has 5 elements and nothing around it may be read.
  for (const int64_t count : {1, 4, 11, 40}) {
    HandNest hand;
    fusion::ElementBuilder& e = hand.nest->elements;
    const ir::Value* x = hand.Add(Tensor::Role::kInput, DType::kFloat64, {hand.Const(5)});
    hand.Add(Tensor::Role::kOutput, DType::kFloat64, {hand.Const(count)});
    const Element* shifted = e.Apply(Prim::kSub, {hand.At(0), e.Int(DType::kInt64, 3)});
    const Element* inside = e.Apply(Prim::kAnd, {e.Apply(Prim::kGe, {shifted, e.Int(DType::kInt64, 0)}),
                                                 e.Apply(Prim::kLt, {shifted, e.Int(DType::kInt64, 5)})});
    const Element* value = e.Select(inside, e.MakeLoad(x, std::span(&shifted, 1)), e.Float(DType::kFloat64, 9));
    Region region;
    region.columns = hand.To(0, hand.Const(count));
    Phase phase;
    phase.stores.push_back({1, {hand.At(0)}, value});
    region.phases = {std::move(phase)};
    hand.nest->regions.push_back(std::move(region));
    std::vector<double> in = {1, 2, 3, 4, 5}, out(static_cast<size_t>(count));
    RunPlan(hand.Plan(), {Address(in), Address(out)}, 1);
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], i >= 3 && i < 8 ? static_cast<double>(i - 2) : 9) << i;
    }
  }
}

TEST(Cpu, EqualKernelsAreCompiledOnce) {
  Compiler compiler({});
  for (const char* name : {"a", "b"}) {
    HandNest hand;
    const auto artifact = compiler.Compile(Sum(hand, 4, 8, true, name));
    ASSERT_TRUE(artifact.ok());
    EXPECT_EQ((*artifact).kernels, std::vector<std::string>{name});
    const auto kernels = Load(*artifact);
    ASSERT_TRUE(kernels.ok()) << kernels.status().ToString();
    EXPECT_TRUE((*kernels)->Get(name).ok());
    EXPECT_EQ((*kernels)->Get("c").status().ToString(), "NOT_FOUND: no kernel c");
  }
  EXPECT_EQ(compiler.num_compiled(), 1);
  HandNest other;
  ASSERT_TRUE(compiler.Compile(Sum(other, 4, 9, true)).ok());
  EXPECT_EQ(compiler.num_compiled(), 2);
}

// What LLVM keeps from a kernel to the next (its context, its passes, a machine) leaves no trace in an object.
TEST(Cpu, ObjectsDoNotDependOnWhatWasCompiledBefore) {
  const Target target = HostTarget();
  const auto ir = [&](const KernelPlan& plan) {
    const auto text = EmitIr(plan, target);
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return text.ok() ? *text : std::string();
  };
  HandNest rows, columns, large;
  const std::vector<std::string> texts = {ir(Sum(rows, 5, 100, true)), ir(Sum(columns, 7, 67, false)),
                                          ir(LongRows(large))};
  // Named twice a feature is the same one, but nobody has asked for this target before.
  const auto compile = [&](const std::string& text, int times_named) {
    Target named = target;
    for (int i = 1; i < times_named; ++i) named.features += "," + target.features;
    const auto object = CompileObject(text, named);
    EXPECT_TRUE(object.ok()) << object.status().ToString();
    return object.ok() ? *object : std::string();
  };
  std::vector<std::string> fresh;
  for (const std::string& text : texts) fresh.push_back(compile(text, 2 + static_cast<int>(fresh.size())));
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_TRUE(compile(texts[i], 2) == fresh[i]) << "round " << round << ", kernel " << i;
  }
  EXPECT_NE(fresh[0], fresh[1]);
}

TEST(Cpu, ThreadsCompileAtOnce) {
  Compiler compiler({});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&compiler, t] {
      for (int i = 0; i < 4; ++i) {
        HandNest hand;
        const auto artifact = compiler.Compile(Sum(hand, 3 + t % 2, 10 + i, i % 2 == 0));
        EXPECT_TRUE(artifact.ok() && Load(*artifact).ok());
      }
    });
  }
  threads.clear();
  EXPECT_GE(compiler.num_compiled(), 8);
}

TEST(Cpu, KeepsKernelsOnDisk) {
  const CacheDirectory directory;
  const auto compile = [&](Compiler& compiler, int64_t columns, const std::string& name) {
    HandNest hand;
    const auto artifact = compiler.Compile(Sum(hand, 4, columns, true, name));
    EXPECT_TRUE(artifact.ok()) << artifact.status().ToString();
    EXPECT_TRUE(Load(*artifact).ok());
    return artifact->bytes;
  };
  Compiler first({.cache_directory = directory.path()});
  const std::string bytes = compile(first, 8, "k");
  EXPECT_EQ(first.num_compiled(), 1);
  EXPECT_EQ(first.num_from_disk(), 0);

  // Another process, another name: neither compiles again; other sizes do, and another CPU.
  Compiler second({.cache_directory = directory.path()});
  EXPECT_EQ(compile(second, 8, "other"), bytes);
  EXPECT_EQ(compile(second, 8, "third"), bytes);
  EXPECT_EQ(second.num_compiled(), 0);
  EXPECT_EQ(second.num_from_disk(), 1);
  compile(second, 16, "k");
  EXPECT_EQ(second.num_compiled(), 1);
  Target narrow = HostTarget();
  narrow.vector_bytes = 16;
  Compiler other({.target = narrow, .cache_directory = directory.path()});
  compile(other, 8, "k");
  EXPECT_EQ(other.num_compiled(), 1);

  // A damaged file is compiled again, and mended.
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  for (const int64_t compiled : {1, 0}) {
    Compiler after({.cache_directory = directory.path()});
    EXPECT_EQ(compile(after, 8, "k"), bytes);
    EXPECT_EQ(after.num_compiled(), compiled);
  }
}

TEST(Cpu, RefusesForeignBytes) {
  EXPECT_EQ(Load({.bytes = "", .kernels = {}}).status().ToString(),
            "INVALID_ARGUMENT: these bytes are no CPU kernels of this version");
  Compiler compiler({});
  HandNest hand;
  const auto artifact = compiler.Compile(Sum(hand, 4, 8, true));
  ASSERT_TRUE(artifact.ok());
  Artifact cut = *artifact;
  cut.bytes.resize(cut.bytes.size() / 2);
  EXPECT_EQ(Load(cut).status().code(), hir::Code::kInvalidArgument);
  Artifact unnamed = *artifact;
  unnamed.kernels.clear();
  EXPECT_EQ(Load(unnamed).status().ToString(), "INVALID_ARGUMENT: 1 kernels with 0 names");
}

TEST(Cpu, RefusesCodeForAnotherCpu) {
  Target old = HostTarget();
  old.cpu = "x86-64";
  old.features = "-avx,-avx2";
  old.vector_bytes = 16;
  old.fma = old.half = false;
  Compiler compiler({.target = old});
  HandNest hand;
  const auto artifact = compiler.Compile(Sum(hand, 4, 8, true));
  ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
  const Status status = Load(*artifact).status();
  EXPECT_EQ(status.code(), hir::Code::kFailedPrecondition);
  EXPECT_TRUE(status.message().starts_with("kernels for x86-64 (-avx,-avx2) do not run on this ")) << status.message();
}

}  // namespace
}  // namespace hir::codegen::cpu
