// The traceparent of W3C Trace Context, sent with a request: "00-<trace id>-<parent id>-<flags>". It names the request
// of some service for which this one is made, wherever the two leave a trace.
#pragma once

#include <string>
#include <string_view>

namespace hir::base {

// Whether `text` is one of version 00: 32, 16 and 2 small hexadecimal digits behind it; neither id is all zeros.
bool IsTraceparent(std::string_view text);
// The 32 digits. REQUIRES: IsTraceparent, or empty: so is what is returned.
std::string_view TraceIdOf(std::string_view traceparent);
// The field of a log's line: " trace=<trace id>", or nothing. REQUIRES: as above.
std::string TraceField(std::string_view traceparent);

}  // namespace hir::base
