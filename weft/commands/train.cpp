// weft train
#include <numeric>

#include "weft/comm/agreement.h"
#include "weft/commands/command.h"
#include "weft/entry.h"
#include "weft/train/process.h"
#include "weft/train/trainer.h"

int weft_train(const weft::Config& config) {
  return weft::guarded([&] {
    weft::catch_stop_signals();
    weft::set_up_process(config.train.threads);
    weft::World& world = weft::World::join(config.comm, config.log.run_dir);
    std::vector<int64_t> everyone(size_t(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    weft::check_agreement(*world.group("all ranks at the start", everyone), config);
    weft::MeshGroups groups(weft::Mesh(config.parallel, world.size()), world);
    weft::Trainer(config, weft::Env::system(), groups).run();
    world.leave();
    return 0;
  });
}
