#include "tools/cli/picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "tools/cli/table.h"

namespace hir::cli {
namespace {

using base::Cat;
using Kind = PlanItem::Kind;

// All in pixels. A character of the monospaced fonts named in the document is at most 0.61 of its size wide.
constexpr int kFont = 12, kTitleFont = 18;
constexpr double kAdvance = 0.61;
constexpr int kLine = 16;      // From one line of text to the next.
constexpr int kPad = 8;        // Inside a box.
constexpr int kGap = 28;       // Between boxes of a lane: arrows turn there.
constexpr int kChannel = 28;   // Between lanes: arrows run there, on one of
constexpr int kTracks = 4;     // so many tracks.
constexpr int kLaneHead = 92;  // Left of the lanes.
constexpr int kMargin = 24;
constexpr int kRowWidth = 1500;  // Of the boxes in a row.
constexpr int kBoxWidthMin = 132, kBoxWidthMax = 380;
constexpr int kLinesMax = 4;  // Of ops in a box.
constexpr int kTop = 76;      // Of the first row.
constexpr int kLegend = 60;

int TextWidth(std::string_view text, int font) {
  int characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // UTF-8.
  return static_cast<int>(std::ceil(characters * kAdvance * font));
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// `text`, cut so that it is at most `width` wide.
std::string Cut(std::string text, int width) {
  if (TextWidth(text, kFont) <= width) return text;
  const auto keep = static_cast<size_t>(std::max(1.0, width / (kAdvance * kFont) - 1));
  text.resize(std::min(text.size(), keep));
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  return text + "…";
}

// What an item does, in words: "cast 3x, mul, sum".
std::vector<std::string> OpCounts(const std::vector<std::string>& ops) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& op : ops) {
    const size_t equals = op.rfind("= ");
    const std::string name = equals == std::string::npos ? op : op.substr(equals + 2);
    const auto found = std::ranges::find_if(counts, [&](const auto& c) { return c.first == name; });
    found == counts.end() ? static_cast<void>(counts.emplace_back(name, 1)) : static_cast<void>(++found->second);
  }
  std::vector<std::string> words;
  for (const auto& [name, count] : counts) words.push_back(count == 1 ? name : Cat(name, " ", count, "x"));
  return words;
}

// `words` in lines of `width`, at most kLinesMax of them.
std::vector<std::string> Wrapped(const std::vector<std::string>& words, int width) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = Cat(words[i], i + 1 < words.size() ? "," : "");
    if (!lines.empty() && TextWidth(Cat(lines.back(), " ", word), kFont) <= width) {
      base::Append(lines.back(), " ", word);
    } else if (lines.size() < static_cast<size_t>(kLinesMax)) {
      lines.push_back(Cut(word, width));
    } else {
      lines.back() = Cut(Cat(lines.back(), " …"), width);
      if (!lines.back().ends_with("…")) lines.back() += "…";
      break;
    }
  }
  return lines;
}

struct Box {
  int x = 0, width = 0;
  int row = 0;
  size_t lane = 0;
  int top = 0, height = 0;
  std::vector<std::string> lines;

  int right() const { return x + width; }
  // Where arrows come in and go out: apart, so that one that ends beside another's start does not look like its end.
  int entry() const { return top + height / 3; }
  int exit() const { return top + 2 * height / 3; }
};

const char* ClassOf(Kind kind) {
  switch (kind) {
    case Kind::kKernel: return "kernel";
    case Kind::kLibrary: return "library";
    case Kind::kCommunication: return "communication";
    case Kind::kFill: return "fill";
  }
  return "";
}

// Where everything is.
class Layout {
 public:
  explicit Layout(const std::vector<PlanItem>& items) : items_(items) {
    for (const PlanItem& item : items) lanes_.push_back(item.stream);
    std::ranges::sort(lanes_);
    lanes_.erase(std::unique(lanes_.begin(), lanes_.end()), lanes_.end());
    for (const PlanItem& item : items) bytes_max_ = std::max(bytes_max_, item.bytes.value_or(0));
    PlaceX();
    PlaceY();
  }

  const std::vector<int64_t>& lanes() const { return lanes_; }
  const std::vector<Box>& boxes() const { return boxes_; }
  int rows() const { return rows_; }
  int width() const { return kLaneHead + kMargin + widest_ + kGap + kMargin; }
  int bottom() const { return kTop + rows_ * row_height_; }
  int LaneTop(int row, size_t lane) const { return kTop + row * row_height_ + lane_tops_[lane]; }
  int lane_height(size_t lane) const { return lane_heights_[lane]; }
  // Of the channel above a lane, on the track of the arrow `arrow`.
  int ChannelAbove(int row, size_t lane, size_t arrow) const {
    const int track = static_cast<int>(arrow % kTracks);
    return LaneTop(row, lane) - kChannel + (track + 1) * kChannel / (kTracks + 1);
  }
  static int Left() { return kLaneHead + kMargin; }
  int Right() const { return Left() + widest_ + kGap; }

 private:
  int WidthOf(const PlanItem& item) const {
    const int text = 2 * kPad + std::max(TextWidth(item.label, kFont), TextWidth(Amounts(item), kFont));
    const double share =
        bytes_max_ == 0 ? 0.0 : static_cast<double>(item.bytes.value_or(0)) / static_cast<double>(bytes_max_);
    const int by_bytes = static_cast<int>(share * kBoxWidthMax);
    return std::clamp(std::max(text, by_bytes), kBoxWidthMin, kBoxWidthMax);
  }

  static std::string Amounts(const PlanItem& item) {
    return Cat(item.amount, item.amount.empty() || item.note.empty() ? "" : ", ", item.note);
  }

  std::vector<std::string> LinesOf(const PlanItem& item, int width) const {
    const int inner = width - 2 * kPad;
    std::vector<std::string> lines = {Cut(item.label, inner)};
    if (const std::string amounts = Amounts(item); !amounts.empty()) lines.push_back(Cut(amounts, inner));
    for (std::string& line : Wrapped(OpCounts(item.ops), inner)) lines.push_back(std::move(line));
    return lines;
  }

  // Each as early as its stream and what it reads allow; rows are filled in the order of the program.
  void PlaceX() {
    std::vector<int> ends(lanes_.size(), 0);
    for (const PlanItem& item : items_) {
      Box box;
      box.lane = static_cast<size_t>(std::ranges::find(lanes_, item.stream) - lanes_.begin());
      box.width = WidthOf(item);
      box.lines = LinesOf(item, box.width);
      int start = ends[box.lane];
      for (const size_t before : item.after) {
        if (boxes_[before].row == rows_ - 1) start = std::max(start, boxes_[before].right() - Left() + kGap);
      }
      if (start > 0 && start + box.width > kRowWidth) {
        ++rows_;
        std::ranges::fill(ends, 0);
        start = 0;
      }
      box.row = rows_ - 1;
      box.x = Left() + start;
      ends[box.lane] = start + box.width + kGap;
      widest_ = std::max(widest_, start + box.width);
      boxes_.push_back(std::move(box));
    }
  }

  void PlaceY() {
    lane_heights_.assign(lanes_.size(), 0);
    for (const Box& box : boxes_) {
      const int height = static_cast<int>(box.lines.size()) * kLine + 2 * kPad;
      lane_heights_[box.lane] = std::max(lane_heights_[box.lane], height);
    }
    int y = kChannel;
    for (const int height : lane_heights_) {
      lane_tops_.push_back(y);
      y += height + kChannel;
    }
    row_height_ = y + kChannel / 2;
    for (Box& box : boxes_) {
      box.top = LaneTop(box.row, box.lane);
      box.height = lane_heights_[box.lane];
    }
  }

  const std::vector<PlanItem>& items_;
  std::vector<int64_t> lanes_;  // Streams, ascending.
  std::vector<Box> boxes_;      // One an item.
  std::vector<int> lane_tops_, lane_heights_;
  int64_t bytes_max_ = 0;
  int rows_ = 1;
  int row_height_ = 0;
  int widest_ = kBoxWidthMin;
};

// Writes the document.
class Document {
 public:
  Document(const Layout& layout, const std::vector<PlanItem>& items) : layout_(layout), items_(items) {}

  std::string Render(const PictureTitle& title) {
    const int width =
        std::max({layout_.width(), kMargin + TextWidth(title.name, kTitleFont) + kMargin,
                  kMargin + TextWidth(title.subtitle, kFont) + kMargin, kMargin + kLegendWidth + kMargin});
    const int height = layout_.bottom() + kLegend;
    base::Append(out_, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                 "\" viewBox=\"0 0 ", width, " ", height, "\">\n", kStyle);
    base::Append(out_, "<rect class=\"paper\" width=\"", width, "\" height=\"", height, "\"/>\n");
    Text("title", kMargin, 34, title.name);
    Text("text", kMargin, 56, title.subtitle);
    Lanes();
    Arrows();
    for (size_t i = 0; i < items_.size(); ++i) Item(items_[i], layout_.boxes()[i]);
    Legend();
    return out_ + "</svg>\n";
  }

 private:
  static constexpr int kLegendWidth = 1060;
  static constexpr const char* kStyle =
      "<style>\n"
      "text { font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 12px; fill: "
      "#1b1f24; }\n"
      ".title { font-size: 18px; font-weight: bold; }\n"
      ".head { fill: #57606a; }\n"
      ".label { font-weight: bold; }\n"
      ".paper { fill: #ffffff; }\n"
      ".lane { fill: #f3f5f7; }\n"
      ".kernel { fill: #cfe3ff; stroke: #2f6fc4; }\n"
      ".library { fill: #d6f0d8; stroke: #3a8a43; }\n"
      ".communication { fill: #ffe2b8; stroke: #c07a1c; }\n"
      ".fill { fill: #e9e3f5; stroke: #7a5bb5; }\n"
      ".arrow { fill: none; stroke: #6e7781; stroke-width: 1.5; marker-end: url(#tip); }\n"
      "</style>\n"
      "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" "
      "markerHeight=\"7\" "
      "orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#6e7781\"/></marker></defs>\n";

  void Text(const char* text_class, int x, int baseline, std::string_view text) {
    base::Append(out_, "<text class=\"", text_class, "\" x=\"", x, "\" y=\"", baseline, "\">", Escaped(text),
                 "</text>\n");
  }

  void Lanes() {
    for (int row = 0; row < layout_.rows(); ++row) {
      for (size_t lane = 0; lane < layout_.lanes().size(); ++lane) {
        const int top = layout_.LaneTop(row, lane);
        base::Append(out_, "<rect class=\"lane\" x=\"", Layout::Left() - kPad, "\" y=\"", top - kPad / 2, "\" width=\"",
                     layout_.Right() - Layout::Left() + 2 * kPad, "\" height=\"", layout_.lane_height(lane) + kPad,
                     "\"/>\n");
        Text("head", kMargin, top + layout_.lane_height(lane) / 2 + kFont / 3, Cat("stream ", layout_.lanes()[lane]));
      }
    }
  }

  // One for each result that crosses streams: out of its maker, along the channel above the reader's lane, or below
  // when the maker is there, into the reader.
  void Arrows() {
    size_t arrow = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      for (const size_t before : items_[i].after) {
        const Box& from = layout_.boxes()[before];
        const Box& to = layout_.boxes()[i];
        if (from.lane == to.lane) continue;
        Arrow(from, to, arrow++);
      }
    }
  }

  void Arrow(const Box& from, const Box& to, size_t arrow) {
    const int turn = kGap / 4 + static_cast<int>(arrow % kTracks) * kGap / 8;
    const int out_x = from.right() + turn, in_x = to.x - kGap + turn;
    // The channel beside the reader's lane, on the maker's side.
    const bool below = from.row == to.row && from.lane > to.lane;
    const int along = layout_.ChannelAbove(to.row, below ? to.lane + 1 : to.lane, arrow);
    base::Append(out_, "<path class=\"arrow\" d=\"M", from.right(), " ", from.exit());
    if (from.row == to.row) {
      base::Append(out_, " H", out_x, " V", along, " H", in_x);
    } else {  // Down the right margin, back in the space above the row.
      const int margin = layout_.Right() - kGap / 2 + turn / 2;
      const int leave =
          from.lane == 0 ? layout_.ChannelAbove(from.row, 0, arrow) : layout_.ChannelAbove(from.row, from.lane, arrow);
      const int enter = layout_.ChannelAbove(to.row, 0, arrow);
      base::Append(out_, " H", out_x, " V", leave, " H", margin, " V", enter, " H",
                   to.lane == 0 ? in_x : Layout::Left() - kPad - turn);
      if (to.lane != 0) base::Append(out_, " V", along, " H", in_x);
    }
    base::Append(out_, " V", to.entry(), " H", to.x, "\"/>\n");
  }

  void Item(const PlanItem& item, const Box& box) {
    base::Append(out_, "<g><title>", Escaped(Cat(item.label, item.amount.empty() ? "" : ", ", item.amount)));
    for (const std::string& op : item.ops) base::Append(out_, "\n", Escaped(op));
    base::Append(out_, "</title>\n<rect class=\"item ", ClassOf(item.kind), "\" x=\"", box.x, "\" y=\"", box.top,
                 "\" width=\"", box.width, "\" height=\"", box.height, "\" rx=\"4\"/>\n");
    for (size_t i = 0; i < box.lines.size(); ++i) {
      Text(i == 0 ? "label" : "text", box.x + kPad, box.top + kPad + kFont + static_cast<int>(i) * kLine, box.lines[i]);
    }
    out_ += "</g>\n";
  }

  void Legend() {
    const std::pair<const char*, const char*> entries[] = {
        {"kernel", "kernel"}, {"library", "library call"}, {"communication", "communication"}, {"fill", "fill"}};
    const int top = layout_.bottom() + 8;
    int x = kMargin;
    for (const auto& [name, words] : entries) {
      base::Append(out_, "<rect class=\"", name, "\" x=\"", x, "\" y=\"", top, "\" width=\"14\" height=\"14\"/>\n");
      Text("head", x + 20, top + kFont, words);
      x += 20 + TextWidth(words, kFont) + 20;
    }
    base::Append(out_, "<path class=\"arrow\" d=\"M", x, " ", top + 7, " H", x + 28, "\"/>\n");
    Text("head", x + 36, top + kFont, "a result that another stream reads");
    Text("head", kMargin, top + kFont + 22,
         "A box is as wide as the bytes that a rank reads and writes, or communicates, but never "
         "narrower than its "
         "text. Its ops are in its tooltip.");
  }

  const Layout& layout_;
  const std::vector<PlanItem>& items_;
  std::string out_;
};

}  // namespace

std::string DrawPlan(const PictureTitle& title, const std::vector<PlanItem>& items) {
  const Layout layout(items);
  return Document(layout, items).Render(title);
}

}  // namespace hir::cli
