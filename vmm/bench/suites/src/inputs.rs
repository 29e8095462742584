//! Inputs for programs whose suites come without them. The values are made up, but always the same.
//! A name says what is in the file and how large it is.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Makes the content of a file of these sizes.
type Make = fn(&[u64]) -> String;

/// A maker of files: what is before the numbers in their names and behind them, how many numbers
/// there are (an `x` stands between two), and what makes the file.
type Maker = (&'static str, &'static str, usize, Make);

const MAKERS: [Maker; 12] = [
    ("bfs/graph", ".txt", 1, |sizes| bfs_graph(sizes[0])),
    ("hotspot/temp_", "", 1, |sizes| {
        numbers(sizes[0].pow(2), 320.0, 345.0)
    }),
    ("hotspot/power_", "", 1, |sizes| {
        numbers(sizes[0].pow(2), 0.0, 0.01)
    }),
    ("hotspot3D/temp_", "", 2, |sizes| {
        numbers(sizes[0].pow(2) * sizes[1], 320.0, 345.0)
    }),
    ("hotspot3D/power_", "", 2, |sizes| {
        numbers(sizes[0].pow(2) * sizes[1], 0.0, 0.01)
    }),
    ("srad/image", ".pgm", 0, |_| image(502, 458)),
    ("huffman/", ".in", 1, |sizes| words(sizes[0])),
    ("b+tree/keys", ".txt", 1, |sizes| keys(sizes[0])),
    ("b+tree/searches", ".txt", 2, |sizes| {
        searches(sizes[0], sizes[1])
    }),
    ("nn/cane4_", ".db", 1, |_| hurricanes(10_691)),
    ("cfd/domain", "", 2, |sizes| domain(sizes[0], sizes[1])),
    ("dwt2d/", ".bmp", 1, |sizes| words(3 * sizes[0].pow(2))),
];

/// Largest number in a name: files stay below some gigabytes.
const SIZE_MAX: u64 = 10_000_000;

/// Returns what makes the input `name`, with the numbers in the name.
fn maker(name: &str) -> Option<(Make, Vec<u64>)> {
    MAKERS.iter().find_map(|(before, behind, count, make)| {
        let middle = name.strip_prefix(before)?.strip_suffix(behind)?;
        let parts = middle.split('x').filter(|part| !part.is_empty());
        let sizes: Vec<u64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let fits = sizes.len() == *count && sizes.iter().all(|size| *size <= SIZE_MAX);
        fits.then_some((*make, sizes))
    })
}

/// Returns whether [`make`] can make the input `name`.
pub fn is_known(name: &str) -> bool {
    maker(name).is_some()
}

/// Makes the input `name` in `folder`.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a name that nothing makes, and errors of writing.
pub fn make(folder: &Path, name: &str) -> io::Result<()> {
    let path = folder.join(name);
    let unknown = || io::Error::new(io::ErrorKind::InvalidInput, "no such input can be made");
    let (make, sizes) = maker(name).ok_or_else(unknown)?;
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, make(&sizes))
}

/// Marsaglia's xorshift64.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first values of near seeds are alike.
        (0..8).for_each(|_| {
            dice.next();
        });
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// At least `low` and less than `end`.
    fn within(&mut self, low: u64, end: u64) -> u64 {
        low + (self.next() >> 16) % (end - low)
    }

    /// At least `low` and less than `high`.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Lines of a text. Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($form:tt)*) => {
        let _ = writeln!($text, $($form)*);
    };
}

/// A graph for Rodinia's bfs: for each node where its edges start and how many it has, then edges.
fn bfs_graph(nodes: u64) -> String {
    let mut dice = Dice::new(nodes);
    let degrees: Vec<u64> = (0..nodes).map(|_| dice.within(1, 7)).collect();
    let mut text = format!("{nodes}\n");
    let mut start = 0;
    for degree in &degrees {
        line!(text, "{start} {degree}");
        start += degree;
    }
    line!(text, "\n0\n\n{start}");
    for (node, degree) in (0..).zip(&degrees) {
        // The first edge of a node leads to its successor, so that all of them are reached.
        let mut end = (node + 1) % nodes;
        for _ in 0..*degree {
            line!(text, "{end} {}", dice.within(1, 11));
            end = dice.within(0, nodes);
        }
    }
    text
}

/// Numbers in that range, one a line.
fn numbers(count: u64, low: f64, high: f64) -> String {
    let mut dice = Dice::new(count);
    let mut text = String::new();
    for _ in 0..count {
        line!(text, "{:.6}", dice.between(low, high));
    }
    text
}

/// A gray picture with speckle, as text (PGM).
fn image(width: u64, height: u64) -> String {
    let mut dice = Dice::new(width);
    let mut text = format!("P2\n{width} {height}\n255\n");
    for _ in 0..height {
        let row: Vec<String> = (0..width)
            .map(|_| dice.within(40, 216).to_string())
            .collect();
        line!(text, "{}", row.join(" "));
    }
    text
}

/// Letters of which some are far more frequent, for Rodinia's huffman.
fn words(size: u64) -> String {
    let mut dice = Dice::new(size);
    let letter = |_| {
        let rank = -2.0 * (1.0 - dice.between(0.0, 1.0)).ln();
        char::from(b'a' + (rank as u8).min(25))
    };
    (0..size).map(letter).collect()
}

/// Keys for Rodinia's b+tree: their number, then each.
fn keys(count: u64) -> String {
    let mut text = format!("{count}\n");
    for key in 0..count {
        line!(text, "{key}");
    }
    text
}

/// Commands for Rodinia's b+tree: one search of `count` keys and one of as many ranges.
fn searches(count: u64, width: u64) -> String {
    format!("j {count} {width}\nk {count}\n")
}

/// A mesh for Rodinia's cfd: for each cell its area, and for each face its neighbor and its normal.
fn domain(columns: u64, rows: u64) -> String {
    let mut text = format!("{}\n", columns * rows);
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        text.push_str("1.0");
        for (x, y) in [(-1, 0), (1, 0), (0, -1), (0, 1)] {
            let there = column
                .checked_add_signed(x)
                .filter(|there| *there < columns);
            let across = row.checked_add_signed(y).filter(|across| *across < rows);
            // Cells count from one; -2 is the far field.
            let neighbor = there
                .zip(across)
                .map(|(there, across)| across * columns + there + 1);
            let neighbor = neighbor.map_or_else(|| String::from("-2"), |cell| cell.to_string());
            let _ = write!(text, " {neighbor} {x}.0 {y}.0 0.0");
        }
        text.push('\n');
    }
    text
}

/// Records of 49 bytes for Rodinia's nn: date, number, name, latitude, longitude and more.
fn hurricanes(count: u64) -> String {
    let mut dice = Dice::new(count);
    let mut text = String::new();
    for number in 0..count {
        let (latitude, longitude) = (dice.between(7.0, 63.0), dice.between(0.0, 358.0));
        let (month, day, hour) = (1 + number % 12, 1 + number % 28, 6 * (number % 4));
        let (wind, pressure) = (dice.within(10, 161), dice.within(0, 901));
        let record = format!(
            "1980 {month:2} {day:2} {hour:2} {:2} {:<9}{latitude:5.1} {longitude:5.1} {wind:4} \
             {pressure:4}",
            number % 28,
            "NOEL"
        );
        line!(text, "{:<48}", &record[..record.len().min(48)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> String {
        let (make, sizes) = maker(name).unwrap();
        make(&sizes)
    }

    #[test]
    fn names_say_how_large_a_file_is() {
        assert_eq!(made("hotspot/temp_8").lines().count(), 64);
        assert_eq!(made("hotspot3D/power_4x2").lines().count(), 32);
        assert_eq!(made("huffman/100.in").len(), 100);
        assert_eq!(made("b+tree/searches10x20.txt"), "j 10 20\nk 10\n");
        for name in [
            "hotspot/temp_",
            "hotspot/temp_4x4",
            "b+tree/keys-1.txt",
            "other",
            "bfs/graph9",
        ] {
            assert!(!is_known(name), "{name}");
        }
        assert!(
            !is_known("bfs/graph99999999.txt"),
            "larger than anything needs"
        );
    }

    #[test]
    fn a_graph_has_the_edges_that_its_nodes_say() {
        let text = made("bfs/graph50.txt");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("50"));
        let count = lines.by_ref().take(50).map(|line| {
            let (_, degree) = line.split_once(' ').unwrap();
            degree.parse::<usize>().unwrap()
        });
        let edges: usize = count.sum();
        let mut rest = lines.skip_while(|line| !line.is_empty()).skip(3);
        assert_eq!(rest.next(), Some(&*edges.to_string()));
        let ends = rest.map(|line| line.split_once(' ').unwrap().0.parse::<usize>().unwrap());
        assert!(ends.inspect(|end| assert!(*end < 50)).count() == edges);
    }

    #[test]
    fn faces_of_a_mesh_lead_back_and_records_are_of_one_length() {
        let text = made("cfd/domain3x2");
        let first = text.lines().nth(1).unwrap();
        assert_eq!(
            first,
            "1.0 -2 -1.0 0.0 0.0 2 1.0 0.0 0.0 -2 0.0 -1.0 0.0 4 0.0 1.0 0.0"
        );
        assert!(made("nn/cane4_0.db").lines().all(|line| line.len() == 48));
    }
}
