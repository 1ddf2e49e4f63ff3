//! A C program to be built: sources and headers from a seed, a makefile, and what the program says when it runs, which
//! is computed here as well: a wrong byte in a source, an object or the program shows.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;

/// Source files at scale 1: half a minute for one core.
const FILES: f64 = 150.0;
/// Functions of each.
const FUNCTIONS: usize = 80;
/// Headers that each includes, and their functions.
const INCLUDES: usize = 8;
const INLINES: usize = 6;

/// See the module.
#[derive(Debug)]
pub(super) struct Sources {
    /// Paths and texts.
    pub files: Vec<(String, String)>,
    /// What the program says.
    pub says: String,
}

/// An inline function of a header.
#[derive(Debug, Clone, Copy)]
struct Inline {
    shift: u32,
    factor: u32,
}

impl Inline {
    fn of(self, x: u32) -> u32 {
        (x ^ (x >> self.shift)).wrapping_mul(self.factor)
    }
}

/// A function of a source file.
#[derive(Debug)]
struct Function {
    start: u32,
    turns: u32,
    factor: u32,
    shift: u32,
    table: [u32; 16],
    /// The inline function that it calls: its header and its place there.
    calls: (usize, usize),
}

impl Function {
    fn new(rng: &mut ChaCha8Rng, includes: &[usize]) -> Function {
        Function {
            start: rng.random(),
            turns: rng.random_range(2..9),
            factor: rng.random::<u32>() | 1,
            shift: rng.random_range(3..29),
            table: rng.random(),
            calls: (includes[rng.random_range(0..includes.len())], rng.random_range(0..INLINES)),
        }
    }

    fn of(&self, x: u32, headers: &[[Inline; INLINES]]) -> u32 {
        let mut y = x ^ self.start;
        for turn in 0..self.turns {
            y = y.wrapping_mul(self.factor).wrapping_add(y >> self.shift);
            y ^= self.table[(y.wrapping_add(turn) & 15) as usize];
        }
        match y % 3 {
            0 => y.wrapping_add(headers[self.calls.0][self.calls.1].of(y)),
            1 => y ^ self.start.rotate_left(7),
            _ => y.wrapping_sub(x),
        }
    }

    fn text(&self, name: &str) -> String {
        let table: Vec<String> = self.table.iter().map(|word| format!("0x{word:08x}u")).collect();
        let (start, turns, factor, shift) = (self.start, self.turns, self.factor, self.shift);
        let (header, inline) = self.calls;
        format!(
            "/* Mixes its argument {turns} times. */\n\
             static uint32_t {name}(uint32_t x)\n{{\n    \
                 static const uint32_t table[16] = {{\n        {}\n    }};\n    \
                 uint32_t y = x ^ 0x{start:08x}u;\n    \
                 for (uint32_t turn = 0; turn < {turns}u; turn++) {{\n        \
                     y = y * 0x{factor:08x}u + (y >> {shift});\n        \
                     y ^= table[(y + turn) & 15u];\n    }}\n    \
                 switch (y % 3u) {{\n    \
                 case 0: return y + inline_{header}_{inline}(y);\n    \
                 case 1: return y ^ 0x{:08x}u;\n    \
                 default: return y - x;\n    }}\n}}\n\n",
            table.join(", "),
            start.rotate_left(7),
        )
    }
}

fn header(number: usize, inlines: &[Inline; INLINES]) -> String {
    let mut text = format!("#ifndef HEADER_{number}_H\n#define HEADER_{number}_H\n#include <stdint.h>\n\n");
    let _ =
        writeln!(text, "struct state_{number} {{ uint32_t words[16]; uint64_t turns; char name[32]; }};\n");
    for (place, inline) in inlines.iter().enumerate() {
        let (shift, factor) = (inline.shift, inline.factor);
        let _ = writeln!(
            text,
            "static inline uint32_t inline_{number}_{place}(uint32_t x)\n{{\n    \
             return (x ^ (x >> {shift})) * 0x{factor:08x}u;\n}}\n"
        );
    }
    text + "#endif\n"
}

const MAKEFILE: &str = "CC = cc\nCFLAGS = -O1 -Iinclude\nHEADERS = $(wildcard include/*.h)\n\
    OBJECTS = $(patsubst %.c,%.o,$(sort $(wildcard src/*/*.c)))\n\n\
    program: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\n\
    %.o: %.c $(HEADERS)\n\t$(CC) $(CFLAGS) -c -o $@ $<\n";

impl Sources {
    /// The program of a seed, at a scale.
    pub fn new(seed: u64, scale: f64) -> Sources {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x0043);
        let count = (FILES * scale).round().max(3.0) as usize;
        let inline =
            |rng: &mut ChaCha8Rng| Inline { shift: rng.random_range(5..25), factor: rng.random::<u32>() | 1 };
        let headers: Vec<[Inline; INLINES]> =
            (0..count.div_ceil(3).max(INCLUDES)).map(|_| std::array::from_fn(|_| inline(&mut rng))).collect();
        let mut files: Vec<(String, String)> = headers
            .iter()
            .enumerate()
            .map(|(number, inlines)| (format!("include/header_{number}.h"), header(number, inlines)))
            .collect();
        let (mut main, mut x) = ("#include <stdint.h>\n#include <stdio.h>\n\n".to_owned(), 1);
        for number in 0..count {
            let includes: Vec<usize> = (0..INCLUDES).map(|_| rng.random_range(0..headers.len())).collect();
            let mut text =
                "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                    .to_owned();
            for include in &includes {
                let _ = writeln!(text, "#include \"header_{include}.h\"");
            }
            let mut body = String::new();
            for place in 0..FUNCTIONS {
                let function = Function::new(&mut rng, &includes);
                text += &format!("\n{}", function.text(&format!("mix_{place}")));
                let _ = writeln!(body, "    x = mix_{place}(x);");
                x = function.of(x, &headers);
            }
            let _ = write!(text, "uint32_t part_{number}(uint32_t x)\n{{\n{body}    return x;\n}}\n");
            files.push((format!("src/part{:02}/part_{number}.c", number % 16), text));
            let _ = writeln!(main, "uint32_t part_{number}(uint32_t x);");
        }
        let calls: String = (0..count).map(|number| format!("    x = part_{number}(x);\n")).collect();
        main += &format!(
            "\nint main(void)\n{{\n    uint32_t x = 1;\n{calls}    printf(\"%08x\\n\", (unsigned)x);\n    return 0;\n}}\n"
        );
        files.push(("src/part00/main.c".into(), main));
        files.push(("Makefile".into(), MAKEFILE.into()));
        Sources { files, says: format!("{x:08x}\n") }
    }
}
