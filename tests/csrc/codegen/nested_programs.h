// Programs whose reductions keep other axes than the rows of their kernel: results of each row, and of columns in it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/fusion/interpret/interpret.h"

namespace hir::codegen {

// The backward pass of a group norm: rows are groups of channels, and each channel has sums over images and places.
inline std::string GroupNormBackward(const std::string& dtype, const std::string& shape) {
  return base::Cat("fusion @f(%dy: ", dtype, "[", shape, "], %x: ", dtype, "[", shape,
                   R"(], %weight: f32[b, i1, i2, b], %rstd: f32[i0, i1, b, b]) {
  %x32 = cast(%x) {dtype=f32}
  %dy32 = cast(%dy) {dtype=f32}
  %k = constant() {value=0.02, dtype=f64}
  %xhat = mul(%x32, %rstd)
  %dbias = sum(%dy32) {axes=[0, 3], keepdim=false, dtype=null}
  %along = mul(%dy32, %xhat)
  %dweight = sum(%along) {axes=[0, 3], keepdim=false, dtype=null}
  %g = mul(%dy32, %weight)
  %g_sum = sum(%g) {axes=[2, 3], keepdim=true, dtype=null}
  %g_mean = mul(%g_sum, %k)
  %gx = mul(%g, %xhat)
  %gx_sum = sum(%gx) {axes=[2, 3], keepdim=true, dtype=null}
  %gx_mean = mul(%gx_sum, %k)
  %a = sub(%g, %g_mean)
  %b = mul(%xhat, %gx_mean)
  %c = sub(%a, %b)
  %dx = mul(%c, %rstd)
  return %dx, %dweight, %dbias
})");
}

// A maximum and the sum of what lies below it, which GPUs take in one reading, beside sums of each channel in both.
inline std::string SoftmaxAndChannels(const std::string& shape) {
  return base::Cat("fusion @f(%x: f32[", shape, R"(]) {
  %c = sum(%x) {axes=[0, 2], keepdim=false, dtype=null}
  %m = max(%x) {axes=[1, 2], keepdim=true, dtype=null}
  %d = sub(%x, %m)
  %e = exp(%d)
  %s = sum(%e) {axes=[1, 2], keepdim=true, dtype=null}
  %y = div(%e, %s)
  %of_e = sum(%e) {axes=[0, 2], keepdim=false, dtype=null}
  return %y, %c, %of_e
})");
}

// A chain of reductions of rows, and beside it reductions over whatever rows and over the columns, or over the columns
// but the outermost ones.
class NestedProgram {
 public:
  explicit NestedProgram(uint64_t seed, int64_t elements_max = 20000) : prng_(seed * 0x9e3779b97f4a7c15 + 11) {
    const int64_t rank = prng_.Between(2, 5);
    num_rows_ = prng_.Between(1, rank - 1);
    nested_ = prng_.Between(0, rank - num_rows_ - 1);
    int64_t elements = 1;
    std::string shape;
    for (int64_t axis = 0; axis < rank; ++axis) {
      const int64_t extent = ExtentUpTo(elements_max / std::max<int64_t>(elements, 1));
      empty_ = empty_ || extent == 0;
      elements *= extent;
      const bool constant = extent != 1 && prng_.OneIn(2);  // What is 1 for certain is no axis to reduce.
      if (!constant) symbols[base::Cat("i", axis)] = extent;
      base::Append(shape, axis > 0 ? ", " : "", constant ? base::Cat(extent) : base::Cat("i", axis));
      (axis < num_rows_ ? rows_ : columns_).push_back(axis);
    }
    const std::string dtype = OneOf({"f32", "bf16", "f64"});
    text_ = base::Cat("fusion @f(%x: ", dtype, "[", shape, "], %g: ", dtype, "[", shape, "]) {\n",
                      "  %k = constant() {value=0.03, dtype=f64}\n");
    for (const char* input : {"%x", "%g"}) {
      Let("cast", input, "{dtype=f32}");
      full_.push_back(last_);
    }
    const int64_t steps = prng_.Between(2, 6);
    for (int64_t step = 0; step < steps; ++step) prng_.OneIn(3) ? OfRows() : OfAllRows();
    OfAllRows();
    if (prng_.OneIn(2)) Return(full_.back());
    text_ = base::Cat(text_, "  return ", base::Join(returned_, ", "), "\n}");
  }

  const std::string& text() const { return text_; }
  fusion::SymbolValues symbols;

 private:
  int64_t ExtentUpTo(int64_t most) {
    constexpr int64_t kExtents[] = {0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 70, 129, 300};
    return std::min(kExtents[prng_.Below(std::ssize(kExtents))], std::max<int64_t>(most, 1));
  }
  std::string OneOf(const std::vector<std::string>& values) {
    return values[static_cast<size_t>(prng_.Below(std::ssize(values)))];
  }
  std::string Kind() { return empty_ ? "sum" : OneOf({"sum", "sum", "max", "min"}); }
  void Let(const std::string& op, std::string operands, const std::string& attributes = "") {
    last_ = base::Cat("%v", next_++);
    base::Append(text_, "  ", last_, " = ", op, "(", operands, ") ", attributes, "\n");
  }
  void Reduce(std::string operand, std::vector<int64_t> axes, bool keepdim) {
    std::ranges::sort(axes);
    Let(Kind(), operand,
        base::Cat("{axes=[", base::Join(axes, ", "), "], keepdim=", keepdim ? "true" : "false", ", dtype=null}"));
  }
  // A reduction of each row, and what is made of the row with it.
  void OfRows() {
    const std::string from = OneOf(full_);
    if (!empty_ && prng_.OneIn(3)) return Softmax(from);
    Reduce(from, columns_, true);
    if (prng_.OneIn(3)) Return(last_);
    Let("mul", base::Cat(last_, ", %k"));
    Let(OneOf({"sub", "mul", "add"}), base::Cat(from, ", ", last_));
    Let("tanh", last_);
    full_.push_back(last_);
    if (prng_.OneIn(4)) Return(last_);
  }
  void Softmax(const std::string& from) {
    const std::string axes = base::Cat("{axes=[", base::Join(columns_, ", "), "], keepdim=true, dtype=null}");
    Let("max", from, axes);
    Let("sub", base::Cat(from, ", ", last_));
    Let("exp", last_);
    const std::string power = last_;
    Let("sum", power, axes);
    Let("div", base::Cat(power, ", ", last_));
    full_.push_back(last_);
    Return(last_);
  }
  // Complete behind the last row.
  void OfAllRows() {
    std::vector<int64_t> axes(columns_.begin() + (prng_.OneIn(4) ? 0 : nested_), columns_.end());
    const auto of_columns = axes.size();
    for (const int64_t row : rows_) {
      if (prng_.OneIn(2)) axes.push_back(row);
    }
    const bool is_whole = of_columns == columns_.size();
    if (is_whole && axes.size() == of_columns) axes.push_back(rows_.front());
    Let(OneOf({"mul", "add"}), base::Cat(OneOf(full_), ", ", OneOf(full_)));
    Reduce(last_, axes, prng_.OneIn(2));
    if (prng_.OneIn(2)) Let("mul", base::Cat(last_, ", %k"));
    if (prng_.OneIn(3)) Let("cast", last_, "{dtype=bf16}");
    Return(last_);
  }
  void Return(const std::string& value) {
    if (std::ranges::find(returned_, value) == returned_.end()) returned_.push_back(value);
  }

  base::Prng prng_;
  int64_t num_rows_ = 0, nested_ = 0;
  bool empty_ = false;
  std::vector<int64_t> rows_, columns_;
  std::string text_, last_;
  int next_ = 0;
  std::vector<std::string> full_, returned_;
};

}  // namespace hir::codegen
