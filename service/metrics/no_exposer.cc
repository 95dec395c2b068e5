// Without prometheus-cpp nobody reads the metrics by HTTP.
#include "service/metrics/exposer.h"

namespace hir::service {

Result<std::unique_ptr<Exposer>> Exposer::Start(const Address&, const Metrics&, std::function<MetricsState()>,
                                                PageTexts) {
  return Status(Code::kUnimplemented, "this hostird is built without prometheus-cpp: leave --metrics out");
}

}  // namespace hir::service
