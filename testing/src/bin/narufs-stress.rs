//! Works on an image until it is killed: `narufs-stress IMAGE NOTES SEED THREADS [BASELINES]`.

use narufs_engine::volume::ImageOptions;
use narufs_testing::stress::Server;
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, image, notes, seed, threads, baselines @ ..] = &args[..] else {
        panic!("IMAGE NOTES SEED THREADS [BASELINES]")
    };
    #[cfg_attr(not(feature = "baselines"), expect(unused_mut, reason = "nothing can be chosen"))]
    let mut options = ImageOptions::default();
    #[cfg(feature = "baselines")]
    if let [names] = baselines {
        options.store.baselines = names.parse().expect("known");
    }
    assert!(baselines.is_empty() || cfg!(feature = "baselines"), "built without baselines");
    let notes = std::fs::File::options().read(true).write(true).open(notes).expect("the notes");
    let server = Server::start_with(Path::new(image), &options).expect("the image");
    server.work(&notes, seed.parse().expect("a number"), threads.parse().expect("a number"));
}
