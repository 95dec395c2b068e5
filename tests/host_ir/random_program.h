// Random host programs from a seed: launches, copies, communications, views, loops,
// branches and groups over int64 buffers, without events or deallocs. Everything on stream 0, or on streams of all
// kinds, also such that change from iteration to iteration. For tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"

namespace hir::host {

struct RandomProgram {
  std::string text = {};
  int64_t num_ranks = 2;
  std::vector<int64_t> param_elements = {};  // One a parameter.
  bool counts = false;                       // Some loop goes to the symbol n.
};

class ProgramGenerator {
 public:
  // alone: for one rank, without communications. streams: some launches are on streams of their own.
  explicit ProgramGenerator(uint64_t seed, bool alone = false, bool streams = false)
      : random_(seed), alone_(alone), streams_(streams) {}

  RandomProgram Make() {
    const bool square = random_.OneIn(4);
    num_ranks_ = square ? 4 : random_.Between(2, 4);
    team_ = square ? 2 : num_ranks_;
    square_ = square && !alone_;
    if (alone_) num_ranks_ = 1;
    for (int i = 0; i < 3; ++i) AddBuffer(base::Cat("x", i), /*wide=*/i == 2, /*written=*/true, /*input=*/true);
    const int64_t num_ops = random_.Between(4, 16);
    for (int64_t i = 0; i < num_ops; ++i) AddOp();
    if (streams_) AddTurningLoop();
    ReturnAll();
    return Finish();
  }

 private:
  struct Buffer {
    std::string name;
    bool wide = false;  // [team, kCount]; else [kCount]
    bool written = false;
    bool input = false;
  };
  static constexpr int64_t kCount = 4;

  void Line(std::string_view text) {
    base::Append(body_, std::string(2 * static_cast<size_t>(depth_), ' '), text, "\n");
  }
  std::string TypeOf(bool wide) const {
    return wide ? base::Cat("i64[", team_, ", ", kCount, "]") : base::Cat("i64[", kCount, "]");
  }
  void AddBuffer(std::string name, bool wide, bool written, bool input) {
    buffers_.push_back({std::move(name), wide, written, input});
  }
  std::string Fresh() { return base::Cat("v", num_values_++); }

  // A buffer that holds something.
  std::string Read(bool wide) {
    std::vector<std::string> names;
    for (const Buffer& b : buffers_) {
      if (b.written && b.wide == wide) names.push_back(b.name);
    }
    return names[static_cast<size_t>(random_.Below(std::ssize(names)))];
  }
  // A buffer to write all of, not one of `reads`: perhaps a new one.
  std::string Write(bool wide, const std::vector<std::string>& reads) {
    std::vector<Buffer*> choices;
    for (Buffer& b : buffers_) {
      const bool read = std::find(reads.begin(), reads.end(), b.name) != reads.end();
      if (!b.input && b.wide == wide && !read) choices.push_back(&b);
    }
    if (depth_ == 1 && (choices.empty() || random_.OneIn(2))) {
      const std::string name = Fresh();
      Line(base::Cat("%", name, ": ", TypeOf(wide), " = alloc() {space=pool}"));
      AddBuffer(name, wide, true, false);
      return name;
    }
    if (choices.empty()) return "";
    Buffer* chosen = choices[static_cast<size_t>(random_.Below(std::ssize(choices)))];
    chosen->written = true;
    return chosen->name;
  }
  std::string Slot(const std::string& wide, std::string_view index) {
    const std::string name = Fresh();
    Line(base::Cat("%", name, ": ", TypeOf(false), " = view_select(%", wide, ") {axis=0, index=", index, "}"));
    return name;
  }

  void Launch(const std::vector<std::string>& reads, const std::vector<std::string>& writes) {
    std::string text = "launch(";
    for (const auto* list : {&reads, &writes}) {
      for (const std::string& name : *list) base::Append(text, text.back() == '(' ? "%" : ", %", name);
    }
    Line(base::Cat(text, ") {kernel=\"mix_", reads.size(), "_", writes.size(), "\", inputs=", reads.size(),
                   ", outputs=", writes.size(), ", workspaces=0, extents=[", kCount, ", ", random_.Below(100),
                   "], grid=", kCount, ", stream=", Stream(), "}"));
  }
  // A kernel of one output without a salt.
  void Launch(std::string_view kernel, std::string_view operands, int64_t count, std::string_view stream) {
    Line(base::Cat("launch(", operands, ") {kernel=\"", kernel, "\", inputs=", std::ranges::count(operands, ','),
                   ", outputs=1, workspaces=0, extents=[", count, "], grid=", count, ", stream=", stream, "}"));
  }
  // By a kernel, or by a communication of each rank with itself, which copies.
  void Copy(const std::string& from, const std::string& to, bool wide, std::string_view stream) {
    if (random_.OneIn(2)) {
      return Launch("copy", base::Cat("%", from, ", %", to), wide ? team_ * kCount : kCount, stream);
    }
    Line(base::Cat("communication(%", from, ", %", to, ") {type=allreduce, reduce=sum, mesh=@alone, dim=mesh_x, ",
                   "to=@alone, stream=", stream, ", seq=", seq_++, "}"));
  }
  std::string Stream() {
    if (!stream_.empty()) return stream_;
    return std::to_string(streams_ && random_.OneIn(4) ? random_.Between(1, 3) : 0);
  }
  void Communicate(std::string_view type, std::string_view reduce, const std::string& src, const std::string& dst) {
    const bool between = type == "broadcast" || type == "send_recv";
    const char* dim = between ? "none" : square_ && random_.OneIn(2) ? "mesh_y" : "mesh_x";
    Line(base::Cat("communication(%", src, ", %", dst, ") {type=", type, ", reduce=", reduce, ", mesh=@m, dim=", dim,
                   ", to=", between ? "@turned" : "@m", ", stream=0, seq=", seq_++, "}"));
  }

  void AddOp() {
    const int64_t kind = random_.Below(12);
    if (alone_ && 5 <= kind && kind < 10) return AddLaunch();
    switch (kind) {
      case 0:
      case 1:
      case 2: return AddLaunch();
      case 3: {
        const std::string in = Read(false);
        return Copy(in, Write(false, {in}), false, "0");
      }
      case 4: {
        const std::string a = Read(false), b = Read(false);
        return Launch("sub", base::Cat("%", a, ", %", b, ", %", Write(false, {a, b})), kCount, "0");
      }
      case 5: {
        const std::string in = Read(false);
        return Communicate("allreduce", "sum", in, Write(false, {in}));
      }
      case 6: {
        const std::string in = Read(false);
        return Communicate("allgather", "none", in, Write(true, {in}));
      }
      case 7: {
        const std::string in = Read(true);
        return Communicate("reduce_scatter", "sum", in, Write(false, {in}));
      }
      case 8: {
        const std::string in = Read(true);
        return Communicate("all_to_all", "none", in, Write(true, {in}));
      }
      case 9: {
        const std::string in = Read(false);
        return Communicate(random_.OneIn(2) ? "send_recv" : "broadcast", "none", in, Write(false, {in}));
      }
      case 10: return streams_ && random_.OneIn(2) ? AddTurningLoop() : AddLoop();
      default: return random_.OneIn(2) && !alone_ ? AddGroup() : AddBranch();
    }
  }

  void AddLaunch() {
    std::vector<std::string> reads = {Read(false)};
    while (reads.size() < 3 && random_.OneIn(2)) reads.push_back(Read(false));
    std::vector<std::string> used = reads, writes = {Write(false, reads)};
    used.push_back(writes[0]);
    if (reads.size() < 3 && random_.OneIn(3)) writes.push_back(Write(false, used));
    Launch(reads, writes);
  }

  // Every slot of a wide buffer in turn; perhaps a communication in it.
  void AddLoop() {
    const std::string from = Read(true), to = Write(true, {from}), other = Read(false);
    const std::string index = Fresh();
    Line(base::Cat("for() {begin=0, end=", team_, ", step=1} { |%", index, ": index|"));
    ++depth_;
    const std::string in = Slot(from, base::Cat("%", index)), out = Slot(to, base::Cat("%", index));
    Launch({in, other}, {out});
    if (random_.OneIn(2) && !alone_) Communicate("allreduce", "sum", out, out);
    const std::string kept = Write(false, {other});
    if (!kept.empty() && random_.OneIn(2)) Launch({out}, {kept});
    --depth_;
    Line("}");
  }

  // Iterations on streams in turn: each through a slot of a ring, from a slot of one wide buffer to one of another,
  // which was written before where the loop may be short. Perhaps with a communication amid, a sum over all iterations,
  // a loop within.
  void AddTurningLoop() {
    const bool counts = random_.OneIn(2);  // To n.
    std::string to, sum;
    for (const Buffer& b : buffers_) {
      if (b.input || !b.written) continue;
      if (b.wide && to.empty()) to = b.name;
      if (!b.wide && sum.empty()) sum = b.name;
    }
    if (to.empty()) {
      to = Fresh();
      Line(base::Cat("%", to, ": ", TypeOf(true), " = alloc() {space=pool}"));
      Copy("x2", to, true, "0");
      AddBuffer(to, true, true, false);
    }
    counts_ |= counts;
    const std::string from = random_.OneIn(3) ? to : "x2", ring = Fresh(), next = Fresh(), index = Fresh();
    const int64_t slots = random_.Between(1, 3), num_streams = random_.Between(2, 3), first = random_.Between(0, 2);
    Line(base::Cat("%", ring, ": i64[", slots, ", ", kCount, "] = alloc() {space=pool}"));
    const bool sums = !sum.empty() && random_.OneIn(4);
    if (sums) Line(base::Cat("%", next, ": ", TypeOf(false), " = alloc() {space=pool}"));
    Line(
        base::Cat("for() {begin=0, end=", counts ? "n" : std::to_string(random_.OneIn(12) ? 70 : random_.Between(1, 8)),
                  ", step=1} { |%", index, ": index|"));
    ++depth_;
    std::string turn = base::Cat("%", index), inner;
    if (random_.OneIn(8)) {
      inner = Fresh();
      Line(base::Cat("for() {begin=0, end=", random_.OneIn(2) && counts ? "n" : "2", ", step=1} { |%", inner,
                     ": index|"));
      ++depth_;
      turn = base::Cat("(2*%", index, " + %", inner, ")");
    }
    stream_ = base::Cat(turn, " mod ", num_streams, " + ", first);
    const std::string in = Slot(from, base::Cat(turn, " mod ", team_)), out = Slot(to, base::Cat(turn, " mod ", team_));
    const std::string tmp = Slot(ring, base::Cat(turn, " mod ", slots));
    Launch({in, "x0"}, {tmp});
    if (random_.OneIn(2) && !alone_) Communicate("allreduce", "sum", tmp, tmp);
    if (random_.OneIn(2)) {
      Launch({tmp}, {out});
    } else {
      if (random_.OneIn(2)) stream_ = base::Cat("(", turn, " + 1) mod ", num_streams);
      Copy(tmp, out, false, Stream());
    }
    if (!inner.empty()) {
      --depth_;
      Line("}");
      stream_.clear();
    }
    if (sums && inner.empty()) {
      Launch("add", base::Cat("%", sum, ", %", tmp, ", %", next), kCount, Stream());
      Copy(next, sum, false, Stream());
    }
    stream_.clear();
    --depth_;
    Line("}");
  }

  void AddGroup() {
    const std::string a = Read(false), b = Read(false);
    const std::string to_a = Write(false, {a, b}), to_b = Write(false, {a, b, to_a});
    Line("group() {");
    ++depth_;
    Communicate("allreduce", "sum", a, to_a);
    Communicate("allreduce", "max", b, to_b);
    --depth_;
    Line("}");
  }

  // Only rank 0 does it.
  void AddBranch() {
    std::vector<std::string> holding;
    for (const Buffer& b : buffers_) {
      if (b.written && !b.wide && !b.input) holding.push_back(b.name);
    }
    if (holding.empty()) return AddLaunch();
    const std::string out = holding[static_cast<size_t>(random_.Below(std::ssize(holding)))];
    std::string in = Read(false);
    if (in == out) in = "x0";
    Line("if() {cond=@first.in} {");
    ++depth_;
    Launch({in}, {out});
    --depth_;
    Line("}");
  }

  void ReturnAll() {
    for (const Buffer& b : buffers_) {
      if (b.input) continue;
      const std::string out = base::Cat("y", outputs_.size());
      Copy(b.name, out, b.wide, "0");
      outputs_.push_back({out, b.wide, true, false});
    }
  }

  RandomProgram Finish() {
    RandomProgram program = {.num_ranks = num_ranks_, .counts = counts_};
    std::vector<std::string> devices, turned, alone;
    for (int64_t i = 0; i < num_ranks_; ++i) {
      devices.push_back(std::to_string(i));
      turned.push_back(std::to_string((i + 1) % num_ranks_));
      alone.push_back(base::Cat("[", i, "]"));
    }
    program.text =
        square_ ? "mesh @m = [[0, 1], [2, 3]]\n" : base::Cat("mesh @m = [", base::Join(devices, ", "), "]\n");
    base::Append(program.text, "mesh @turned = [", base::Join(turned, ", "), "]\nmesh @alone = [",
                 base::Join(alone, ", "), "]\nmesh @first = [0]\nhost @random(");
    std::string returned;
    std::vector<Buffer> params(buffers_.begin(), buffers_.begin() + 3);
    params.insert(params.end(), outputs_.begin(), outputs_.end());
    for (size_t i = 0; i < params.size(); ++i) {
      base::Append(program.text, i == 0 ? "" : ", ", "%", params[i].name, ": ", TypeOf(params[i].wide));
      program.param_elements.push_back(params[i].wide ? team_ * kCount : kCount);
      if (!params[i].input) base::Append(returned, returned.empty() ? "  return %" : ", %", params[i].name);
    }
    base::Append(program.text, ") {\n", body_, returned, "\n}\n");
    return program;
  }

  base::Prng random_;
  const bool alone_, streams_;
  bool counts_ = false;
  std::string stream_;  // Of launches now; "": of no loop.
  int64_t num_ranks_ = 2, team_ = 2;
  bool square_ = false;
  int depth_ = 1;
  int num_values_ = 0;
  int64_t seq_ = 0;
  std::string body_;
  std::vector<Buffer> buffers_, outputs_;
};

}  // namespace hir::host
