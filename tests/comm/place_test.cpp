#include "weft/comm/place.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_of.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Place place(const Variables& variables) {
  return find_place([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of_place(const Variables& variables) {
  return error_of([&] { place(variables); });
}

Variables both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "3"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "6"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"}};
const Variables kSlurm = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "7"}};

void expect_place(const Variables& variables, Launcher launcher, int64_t rank, int64_t size,
                  int64_t local_size) {
  const Place found = place(variables);
  EXPECT_EQ(found.launcher, launcher);
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.size, size);
  EXPECT_EQ(found.local_size, local_size);
}

TEST(Place, IsAloneWithoutALauncher) {
  expect_place({}, Launcher::none, 0, 1, 1);
  expect_place({{"WORLD_SIZE", "4"}, {"SLURM_JOB_ID", "9"}}, Launcher::none, 0, 1, 1);
  // A shell in an allocation is no task of it.
  expect_place({{"SLURM_NTASKS", "16"}}, Launcher::none, 0, 1, 1);
}

TEST(Place, ComesFromEachLauncher) {
  expect_place(kOpenMpi, Launcher::mpi, 3, 8, 2);
  expect_place({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}},
               Launcher::mpi, 1, 4, 4);
  expect_place({{"PMIX_RANK", "2"}}, Launcher::mpi, 2, 0, 1);
  expect_place(kTorchrun, Launcher::torchrun, 5, 6, 2);
  expect_place(kSlurm, Launcher::slurm, 0, 16, 1);
  // The shell of salloc: a step of one task.
  expect_place(both(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}), Launcher::slurm, 0, 1, 1);
}

TEST(Place, PrefersMpiThenTorchrunThenSlurm) {
  EXPECT_EQ(place(both(both(kOpenMpi, kTorchrun), kSlurm)).rank, 3);
  EXPECT_EQ(place(both(kTorchrun, kSlurm)).rank, 5);
  // srun --mpi=pmi2, and --mpi=pmix, which tells no size.
  EXPECT_EQ(place(both({{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}}, kSlurm)).rank, 9);
  expect_place(both({{"PMIX_RANK", "9"}}, kSlurm), Launcher::mpi, 9, 0, 1);
}

TEST(Place, NamesTheVariableThatIsWrong) {
  const auto with = [](Variables variables, const std::string& name, const std::string& value) {
    variables[name] = value;
    return error_of_place(variables);
  };
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "8"), HasSubstr("OMPI_COMM_WORLD_RANK = \"8\""));
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "-1"), HasSubstr("OMPI_COMM_WORLD_RANK = \"-1\""));
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", ""), HasSubstr("OMPI_COMM_WORLD_RANK = \"\""));
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_SIZE", "8x"), HasSubstr("OMPI_COMM_WORLD_SIZE = \"8x\""));
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_SIZE", "0"), HasSubstr("OMPI_COMM_WORLD_SIZE = \"0\""));
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK", "2"),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK = \"2\", and a number from 0 to 1"));
  EXPECT_THAT(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "9"),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE = \"9\", and a number from 1 to 8"));
  EXPECT_THAT(with(kTorchrun, "RANK", "99999999999999999999"), HasSubstr("RANK = \"99999999999999999999\""));
  EXPECT_THAT(with(kSlurm, "SLURM_PROCID", "16"), HasSubstr("SLURM_PROCID = \"16\""));
  EXPECT_THAT(error_of_place({{"OMPI_COMM_WORLD_SIZE", "4"}}),
              AllOf(HasSubstr("OMPI_COMM_WORLD_SIZE = 4"), HasSubstr("OMPI_COMM_WORLD_RANK is not set")));
  EXPECT_THAT(error_of_place({{"OMPI_COMM_WORLD_RANK", "1"}}),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK = \"1\""), HasSubstr("OMPI_COMM_WORLD_SIZE is not set")));
}

TEST(Place, RefusesRanksThatCannotCommunicate) {
  check_can_communicate(place(kOpenMpi));
  check_can_communicate(place({}));
  check_can_communicate(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  check_can_communicate(place(both(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})));
  EXPECT_THAT(error_of([] { check_can_communicate(place(kTorchrun)); }),
              AllOf(HasSubstr("WORLD_SIZE = 6"), HasSubstr("weft train --ranks N")));
  EXPECT_THAT(error_of([] { check_can_communicate(place(kSlurm)); }),
              AllOf(HasSubstr("SLURM_NTASKS = 16"), HasSubstr("--mpi=pmix")));
}

TEST(Place, DividesTheCoresThatRanksShare) {
  EXPECT_EQ(threads_per_rank({}), usable_cores());
  EXPECT_EQ(threads_per_rank({.size = 1'000'000, .local_size = 1'000'000}), 1);
}

}  // namespace
}  // namespace weft
