#include "weft/base/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_of.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

TEST(RunLock, IsHeldByOneAndSeenByAll) {
  const TemporaryDir dir;
  EXPECT_FALSE(run_is_locked(dir.path()));
  {
    const RunLock lock(dir.path());
    EXPECT_TRUE(run_is_locked(dir.path()));
    EXPECT_TRUE(run_is_locked(dir.path())) << "a look does not take it";
    EXPECT_THAT(error_of([&] { RunLock second(dir.path()); }), testing::HasSubstr("another process"));
  }
  EXPECT_FALSE(run_is_locked(dir.path()));
  EXPECT_EQ(error_of([&] { RunLock again(dir.path()); }), "no error");
}

}  // namespace
}  // namespace weft
