// Moving on what is under way: between ops, by a thread of its own, and while a rank waits.
#pragma once

#include <memory>

#include "weft/comm/flight_recorder.h"
#include "weft/comm/operation.h"

namespace weft {

/// Sets the comm keys; `communicates`: there are others in the job.
void configure_progress(const CommConfig& comm, bool communicates);
const CommConfig& comm_config();
void stop_progress();

/// Null: what is communicated is not recorded.
void set_recorder(std::unique_ptr<FlightRecorder> recorder);
FlightRecorder* recorder();

/// Enters an operation among those that are moved on.
void enter(std::shared_ptr<Operation> operation);
/// It has come to its end. One that has failed is kept: messages may still come.
void leave(const Operation& operation, bool failed);

/// One test of each operation that is under way, but for this one; on the thread that computes.
void poll_operations(const Operation* except = nullptr);

CommTotals& comm_totals();

}  // namespace weft
