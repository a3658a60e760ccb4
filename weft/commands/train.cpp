// weft train
#include "weft/comm/agreement.h"
#include "weft/commands/command.h"
#include "weft/entry.h"
#include "weft/train/process.h"
#include "weft/train/trainer.h"

int weft_train(const weft::Config& config) {
  return weft::guarded([&] {
    weft::catch_stop_signals();
    weft::set_up_process(config.train.threads);
    // Until they are known to agree, ranks communicate by the same keys.
    weft::World& world = weft::World::join({.timeout = config.comm.timeout}, config.log.run_dir);
    weft::check_agreement(*world.all("all ranks at the start"), config);
    weft::World::join(config.comm, config.log.run_dir);
    weft::MeshGroups groups(weft::Mesh(config.parallel, world.size()), world);
    weft::Trainer(config, weft::Env::system(), groups).run();
    world.leave();
    return 0;
  });
}
