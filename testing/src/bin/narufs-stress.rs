//! Works on an image until it is killed: `narufs-stress IMAGE NOTES SEED THREADS`.

use narufs_testing::stress::Server;
use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, image, notes, seed, threads] = &args[..] else { panic!("IMAGE NOTES SEED THREADS") };
    let notes = std::fs::File::options().read(true).write(true).open(notes).expect("the notes");
    let server = Server::start(Path::new(image)).expect("the image");
    server.work(&notes, seed.parse().expect("a number"), threads.parse().expect("a number"));
}
