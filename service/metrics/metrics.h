// Metrics: what has happened in the daemon since its start, counted where it happens. Who looks from outside reads it:
// the page of exposer.h, and Status.
#pragma once

#include <cstddef>

#include "service/metrics/by_name.h"
#include "service/metrics/counts.h"
#include "service/metrics/flight_recorder.h"

namespace hir::service {

// Thread-safe. No name is made up here of what a client sends: there is a bound to each set of them.
struct Metrics {
  static constexpr size_t kPrincipalsMax = 64;  // "other" is one of them.

  struct Method {
    Outcomes outcomes;
    Histogram time;  // From the request to its answer.
  };
  ByName<Method, 32> methods;

  struct Principal {
    Histogram queue_time;  // Of its runs, from their acceptance to their turn.
  };
  ByName<Principal, kPrincipalsMax> principals;
  Outcomes runs;
  Histogram run_time;  // Of those that had a turn: from it to their end.

  struct Communication {
    Counter bytes;   // Of the runs that went well: what each rank's part has, of all ranks.
    Histogram time;  // On a rank, of runs that were measured.
  };
  ByName<Communication, 32> communications;  // By type.

  Counter uploaded_bytes, downloaded_bytes;
  Counter uploaded_past_head_bytes, downloaded_past_head_bytes;  // Of these, between clients and nodes of a cluster.
  Counter unreached_nodes;                                       // Tensors that went by the head, since a client could
                                                                 // not reach a node.
  Counter cache_hits, cache_misses, cache_evictions;             // Of programs and of their plans for sizes.
  Histogram plan_time;
  Counter planner_deaths;
  Counter heals;      // Of the mesh.
  Absence mesh_down;  // From a failure to the next generation.

  FlightRecorder latest;  // Runs, requests that failed, plans, failures of the mesh.
};

}  // namespace hir::service
