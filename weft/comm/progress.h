// Moving on what is under way: between ops, by a thread of its own, and while a rank waits.
#pragma once

#include "weft/comm/group.h"

namespace weft {

/// Sets timeout and progress; `communicates`: there are others in the job.
void configure_progress(const CommConfig& comm, bool communicates);
void stop_progress();

/// One test of each operation that is under way, on the thread that computes.
void poll_operations();

CommTotals comm_totals();

}  // namespace weft
