//! A store of keys and values in a log: each change is appended, and found again when the log is read.
//!
//! `cargo run -p narufs --example log -- IMAGE KEY [VALUE]` shows what a key has, or gives it a value.

use narufs::{FormatOptions, Fs, MountOptions, OpenOptions};
use std::collections::HashMap;
use std::error::Error;

/// Where a value lies in the log.
struct Place {
    offset: u64,
    len: usize,
}

struct Store {
    log: narufs::File,
    places: HashMap<Vec<u8>, Place>,
}

impl Store {
    fn open(fs: &Fs) -> narufs::Result<Store> {
        let log = fs.open_with("/log", OpenOptions::new().read(true).append(true).create(true))?;
        let (end, mut at) = (log.metadata()?.len(), 0);
        let mut places = HashMap::new();
        let mut lengths = [0; 8];
        while at + 8 <= end {
            log.read_exact_at(&mut lengths, at)?;
            let [key, len] = [&lengths[..4], &lengths[4..]]
                .map(|n| u32::from_le_bytes(n.try_into().expect("four bytes")) as usize);
            let offset = at + 8 + key as u64;
            let next = offset + len as u64;
            if next > end {
                break;
            }
            let mut name = vec![0; key];
            log.read_exact_at(&mut name, at + 8)?;
            places.insert(name, Place { offset, len });
            at = next;
        }
        Ok(Store { log, places })
    }

    fn get(&self, key: &[u8]) -> narufs::Result<Option<Vec<u8>>> {
        let Some(place) = self.places.get(key) else { return Ok(None) };
        let mut value = vec![0; place.len];
        self.log.read_exact_at(&mut value, place.offset)?;
        Ok(Some(value))
    }

    /// Returns when the value survives a loss of power.
    fn put(&mut self, key: &[u8], value: &[u8]) -> narufs::Result<()> {
        let lengths = [key.len(), value.len()].map(|n| (n as u32).to_le_bytes()).concat();
        let start = self.log.append_all(&[&lengths, key, value].concat())?;
        self.log.sync_data()?;
        let place = Place { offset: start + 8 + key.len() as u64, len: value.len() };
        self.places.insert(key.to_vec(), place);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(image), Some(key)) = (args.next(), args.next()) else { return Err("IMAGE KEY [VALUE]".into()) };
    if !std::fs::exists(&image)? {
        Fs::format(&image, &FormatOptions::new().size(64 << 20))?;
    }
    let fs = Fs::open(&image, &MountOptions::new())?;
    let mut store = Store::open(&fs)?;
    match args.next() {
        Some(value) => store.put(key.as_bytes(), value.as_bytes())?,
        None => match store.get(key.as_bytes())? {
            Some(value) => println!("{}", String::from_utf8_lossy(&value)),
            None => println!("{key} has no value"),
        },
    }
    drop(store);
    Ok(fs.close()?)
}
