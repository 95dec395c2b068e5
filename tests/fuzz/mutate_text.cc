#include "tests/fuzz/mutate_text.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace hir::fuzz {
namespace {

size_t Pick(base::Prng& prng, size_t n) { return static_cast<size_t>(prng.Below(static_cast<int64_t>(n))); }

// Words with their sigil, numbers, and single other characters; joined they are the text again.
std::vector<std::string> Tokens(std::string_view text) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  std::vector<std::string> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (part(text[i]) || text[i] == '%' || text[i] == '@') {
      while (end < text.size() && part(text[end])) ++end;
    } else if (text[i] == ' ') {
      while (end < text.size() && text[end] == ' ') ++end;
    }
    tokens.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return tokens;
}

std::string Join(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string OtherNumber(base::Prng& prng, const std::string& number) {
  static constexpr std::string_view kNumbers[] = {
      "0", "1", "-1", "9223372036854775807", "9223372036854775808", "4294967296", "1e308", "65537", "17", "(i0 / i1)"};
  if (prng.OneIn(3)) {
    const auto near = static_cast<uint64_t>(std::atoll(number.c_str())) + static_cast<uint64_t>(prng.Between(-1, 1));
    return std::to_string(static_cast<int64_t>(near));  // Wraps at the ends, which is as good.
  }
  return std::string(kNumbers[Pick(prng, std::size(kNumbers))]);
}

void MutateBytes(base::Prng& prng, std::string& text) {
  const size_t at = Pick(prng, text.size());
  switch (prng.Below(3)) {
    case 0: text[at] = static_cast<char>(prng.Below(256)); break;
    case 1: text.erase(at, 1 + Pick(prng, 4)); break;
    default: text.insert(at, 1, "(){}[],:=|+-*/%@\"\\ \n0ir"[Pick(prng, 23)]); break;
  }
}

void MutateTokens(base::Prng& prng, std::string& text, const std::string& other) {
  std::vector<std::string> tokens = Tokens(text);
  const size_t at = Pick(prng, tokens.size());
  const size_t second = Pick(prng, tokens.size());
  switch (prng.Below(5)) {
    case 0: std::swap(tokens[at], tokens[second]); break;
    case 1: tokens[at] += tokens[at]; break;
    case 2: tokens[at].clear(); break;
    case 3: tokens[at] = tokens[second]; break;
    default: {
      const std::vector<std::string> others = Tokens(other);
      tokens[at] = others[Pick(prng, others.size())];
    }
  }
  text = Join(tokens);
}

void MutateLines(base::Prng& prng, std::string& text, const std::string& other) {
  const auto split = [](const std::string& all) {
    std::vector<std::string> lines(1);
    for (const char c : all) {
      lines.back() += c;
      if (c == '\n') lines.emplace_back();
    }
    return lines;
  };
  std::vector<std::string> lines = split(text);
  const size_t at = Pick(prng, lines.size());
  switch (prng.Below(4)) {
    case 0: std::swap(lines[at], lines[Pick(prng, lines.size())]); break;
    case 1: lines.erase(lines.begin() + static_cast<ptrdiff_t>(at)); break;
    case 2:
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), std::string(lines[Pick(prng, lines.size())]));
      break;
    default: {
      const std::vector<std::string> others = split(other);
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), others[Pick(prng, others.size())]);
    }
  }
  text = Join(lines);
}

void MutateNumber(base::Prng& prng, std::string& text) {
  std::vector<std::string> tokens = Tokens(text);
  const size_t start = Pick(prng, tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[(start + i) % tokens.size()];
    if (!std::isdigit(static_cast<unsigned char>(token[0]))) continue;
    token = OtherNumber(prng, token);
    break;
  }
  text = Join(tokens);
}

}  // namespace

std::string MutateText(base::Prng& prng, std::string text, const std::string& other) {
  for (int64_t i = prng.Between(1, 4); i > 0 && !text.empty(); --i) {
    switch (prng.Below(6)) {
      case 0: MutateBytes(prng, text); break;
      case 1:
      case 2: MutateTokens(prng, text, other); break;
      case 3: MutateLines(prng, text, other); break;
      default: MutateNumber(prng, text); break;
    }
  }
  return text;
}

std::string MutateText(base::Prng& prng, std::span<const std::string> corpus) {
  const std::string& text = corpus[Pick(prng, corpus.size())];
  const std::string& other = corpus[Pick(prng, corpus.size())];
  return MutateText(prng, text, other);
}

}  // namespace hir::fuzz
