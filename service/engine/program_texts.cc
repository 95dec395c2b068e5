#include "service/engine/program_texts.h"

#include <iterator>
#include <utility>

namespace hir::service {

std::shared_ptr<const Program> ProgramTexts::Find(std::string_view text) {
  const auto found = by_text_.find(text);
  if (found == by_text_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->program;
}

void ProgramTexts::Keep(std::string text, std::shared_ptr<const Program> program) {
  if (const auto found = by_text_.find(text); found != by_text_.end()) Erase(found->second);
  entries_.push_front({std::move(text), std::move(program)});
  const Place added = entries_.begin();
  by_text_.emplace(added->text, added);
  of_.emplace(added->program.get(), &*added);
  bytes_ += BytesOf(*added);
  while (bytes_ > bytes_max_) {
    // One that is too long by itself goes alone: it must not cost the others their place.
    Erase(BytesOf(*added) > bytes_max_ ? added : std::prev(entries_.end()));
  }
}

void ProgramTexts::Drop(const Program& program) {
  for (auto at = of_.lower_bound({&program, nullptr}); at != of_.end() && at->first == &program;
       at = of_.lower_bound({&program, nullptr})) {
    Erase(by_text_.at(at->second->text));
  }
}

int64_t ProgramTexts::BytesOf(const Entry& entry) { return static_cast<int64_t>(entry.text.size()) + kEntryBytes; }

void ProgramTexts::Erase(Place place) {
  bytes_ -= BytesOf(*place);
  of_.erase({place->program.get(), &*place});
  by_text_.erase(place->text);
  entries_.erase(place);
}

}  // namespace hir::service
