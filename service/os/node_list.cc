#include "service/os/node_list.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// A place is "line 3 of /etc/nodes", or "the 2nd of them".
struct Entry {
  std::string_view text;
  std::string place;
};

}  // namespace

Result<std::vector<Address>> ParseNodes(std::string_view text) {
  std::string file;
  std::vector<Entry> entries;
  const bool is_file = text.starts_with("/") || text.starts_with("./") || text.starts_with("../");
  if (is_file) {
    std::ifstream in{std::string(text), std::ios::binary};
    std::ostringstream read;
    if (in) read << in.rdbuf();
    if (!in) return Status(Code::kNotFound, base::Cat(text, ": the list of nodes cannot be read"));
    file = read.str();
  }
  std::string_view left = is_file ? std::string_view(file) : text;
  for (int64_t number = 1; !left.empty(); ++number) {
    const size_t end = left.find(is_file ? '\n' : ',');
    std::string_view one = left.substr(0, end);
    left = end == std::string_view::npos ? std::string_view() : left.substr(end + 1);
    if (is_file) one = one.substr(0, one.find('#'));
    one = Trimmed(one);
    if (one.empty() && is_file) continue;
    entries.push_back({one, is_file ? base::Cat("line ", number, " of ", text) : base::Cat("node ", number - 1)});
  }
  if (entries.empty()) return InvalidArgument("a list of nodes names one at least");
  if (entries.size() > kNodesMax)
    return InvalidArgument(base::Cat("a cluster has ", kNodesMax, " nodes at most, not ", entries.size()));
  std::vector<Address> nodes;
  for (const Entry& entry : entries) {
    Result<Address> address = ParseAddress(entry.text);
    if (!address.ok()) return address.status().WithContext(entry.place);
    if (!address->is_unix && address->target.ends_with(":0"))
      return InvalidArgument(base::Cat(entry.place, ": ", entry.text, ": others have to know the port"));
    const auto same = [&](const Address& other) { return other.ToString() == address->ToString(); };
    if (std::ranges::any_of(nodes, same))
      return InvalidArgument(base::Cat(entry.place, ": ", entry.text, " is there twice"));
    nodes.push_back(*std::move(address));
  }
  return nodes;
}

Result<std::vector<std::string>> ParseEtcd(std::string_view text) {
  constexpr std::string_view kScheme = "etcd:";
  if (!text.starts_with(kScheme))
    return InvalidArgument(base::Cat(base::Quoted(text), ": want etcd:HOST:PORT, or several with commas between"));
  std::vector<std::string> members;
  std::string_view left = text.substr(kScheme.size());
  for (bool more = true; more;) {
    const size_t comma = left.find(',');
    more = comma != std::string_view::npos;
    const std::string_view one = left.substr(0, comma);
    left = more ? left.substr(comma + 1) : std::string_view();
    Result<Address> address = ParseAddress(base::Cat("tcp:", one));
    if (!address.ok()) return address.status().WithContext(base::Cat("member ", base::Quoted(one), " of ", text));
    members.push_back(std::move(address->target));
  }
  return members;
}

std::optional<LauncherRank> RankOfLauncher(const char* const* environment) {
  for (const std::string_view variable : kLauncherRanks) {
    for (const char* const* entry = environment; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      if (text.starts_with(variable) && text.substr(variable.size()).starts_with('='))
        return LauncherRank{variable, std::string(text.substr(variable.size() + 1))};
    }
  }
  return std::nullopt;
}

}  // namespace hir::service
