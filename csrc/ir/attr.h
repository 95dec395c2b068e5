// Attributes as an op's row wants them: the check and the conversions that every op goes through.
#pragma once

#include <vector>

#include "csrc/ir/graph.h"

namespace hir::ir {

std::string_view AttrKindName(AttrKind kind);  // "an integer", "a list of extents"

// `attrs` (any order) in the order of the row, converted where nothing is lost: an integer to a float or an extent, a
// list of integers to a list of extents; what is not written is its fallback. Errors: kInvalidArgument for an attribute
// that is missing, unknown, given twice, of another kind, or not a word where a word is due; kResourceExhausted for a
// list that is too long.
Result<std::vector<Attr>> MatchAttrs(Graph& graph, const OpInfo& info, std::span<const Attr> attrs);

// Whether a value of `kind` is in `value` as MatchAttrs leaves it.
bool Holds(const AttrValue& value, AttrKind kind);

// Whether two ops of one row and one graph have equal attributes.
bool EqualAttrs(const Op& a, const Op& b);

// "no attribute dimm; did you mean dim?"
Status UnknownAttr(const OpInfo& info, std::string_view name);

// A name is letters, digits, '_' and '.', at most kNameBytesMax of them; a word is a name that
// starts with a letter or '_'; an identifier is a word without '.'. Values and programs have names,
// ops and attributes words, sizes and meshes identifiers.
bool IsName(std::string_view text);
bool IsWord(std::string_view text);
bool IsIdentifier(std::string_view text);

}  // namespace hir::ir
