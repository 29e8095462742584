//! Findings about pairs of GPUs: which reach each other's memory, and by which way.

use causeway_cuda::{Pair, Survey, Way};
use causeway_vmm::numa;

use crate::check::Check;
use crate::cuda::shown_node;
use crate::links::{self, Links, PairLink};
use crate::pci_path::{Path, path};

const NAME: &str = "CUDA pair";
const WAY_OUT: &str = "use GPUs that are linked by NVLink, or behind one PCI Express root; \
                       `nvidia-smi topo -m` shows the links";
const RIGHT: &str = "give guests only one of these GPUs; or start the host without an IOMMU \
                     (`iommu=off`), which the CUDA programming guide wants for peers";

/// What sysfs tells about a GPU of a pair.
struct Place {
    /// Its NUMA node.
    node: Option<u32>,
    /// Bridges between its root and itself.
    path: Option<Path>,
}

/// Returns a finding for each pair of GPUs, with what is measured between them; none if there is
/// one GPU.
pub fn findings(survey: &Survey) -> Vec<Check> {
    let place = |gpu: u32| {
        let address = &survey.gpus[gpu as usize].pci_address;
        Place {
            node: numa::of_device(address),
            path: path(address),
        }
    };
    if survey.pairs.is_empty() {
        return Vec::new();
    }
    let links = links::ask();
    let finding = |pair: &Pair| finding(pair, &links, &pair.gpus.map(place));
    survey.pairs.iter().map(finding).collect()
}

fn finding(pair: &Pair, links: &Links, places: &[Place; 2]) -> Check {
    let [one, other] = pair.gpus;
    let measured = links.pairs.iter().find(|link| link.gpus == pair.gpus);
    let reaches = reaches(pair);
    let by = match measured.and_then(|measured| measured.link.as_ref()) {
        Some(link) => format!(", linked by {link}"),
        None => String::new(),
    };
    let copies = match measured {
        Some(measured) => copies(pair, measured),
        None => format!("copies not measured: {}", links.end),
    };
    let (link, between) = (link(&pair.ways), between(places));
    let found = format!("GPUs {one} and {other}: {reaches}{by}; {copies}; {link}; {between}");
    let is_wrong = |way: &links::Way| matches!(way, links::Way::Unknown { wrong: true, .. });
    let check = match measured.is_some_and(|measured| measured.ways.iter().any(is_wrong)) {
        true => Check::no(
            NAME,
            found,
            "guests get wrong data from memory of a peer",
            RIGHT,
        ),
        false => judged(pair, found),
    };
    Check {
        pair: measured.cloned(),
        ..check
    }
}

/// Returns what was measured.
fn copies(pair: &Pair, measured: &PairLink) -> String {
    let shown = |index: usize| match &measured.ways[index] {
        links::Way::Speed {
            gb_per_s,
            latency_us,
        } => {
            let by = match pair.ways[index].reaches {
                true => "",
                false => " through memory of the host",
            };
            format!("{gb_per_s:.1} GB/s{by}, {latency_us:.1} µs for 4 bytes")
        }
        links::Way::Unknown { reason, .. } => format!("not measured ({reason})"),
    };
    match &measured.ways {
        [
            links::Way::Unknown { reason: there, .. },
            links::Way::Unknown { reason: back, .. },
        ] if there == back => format!("copies not measured: {there}"),
        _ => format!("copies {}, and back {}", shown(0), shown(1)),
    }
}

fn judged(pair: &Pair, found: String) -> Check {
    match pair.ways.map(|way| way.reaches) {
        [true, true] => Check::yes(
            NAME,
            found,
            "GPUs of a guest that reach each other's memory, where its owner allows it",
        ),
        [false, false] => Check::no(
            NAME,
            found,
            "memory of one is out of reach for the other, and copies go through memory of the host",
            WAY_OUT,
        ),
        _ => Check::partly(
            NAME,
            found,
            "Causeway does not treat them as peers",
            WAY_OUT,
        ),
    }
}

fn reaches(pair: &Pair) -> String {
    let [one, other] = pair.gpus;
    match pair.ways.map(|way| way.reaches) {
        [true, true] => String::from("peers"),
        [false, false] => String::from("no peers"),
        [true, false] => format!("only GPU {one} reaches the other"),
        [false, true] => format!("only GPU {other} reaches the other"),
    }
}

/// Returns what the driver says about the link: once, if it is the same in both directions.
fn link(ways: &[Way; 2]) -> String {
    let shown = |way: &Way| {
        let rank = way
            .rank
            .map_or_else(|| String::from("unknown"), |rank| rank.to_string());
        let atomics = match way.has_atomics {
            Some(true) => "atomics, as NVLink has them",
            Some(false) => "no atomics",
            None => "atomics unknown",
        };
        format!("performance rank {rank}, {atomics}")
    };
    let [there, back] = ways.each_ref().map(shown);
    match there == back {
        true => there,
        false => format!("{there}, and back {back}"),
    }
}

/// Returns what sysfs says about the places of both in the host.
fn between([one, other]: &[Place; 2]) -> String {
    let nodes = match one.node == other.node {
        true => format!("both at {}", shown_node(one.node)),
        false => format!("at {} and {}", shown_node(one.node), shown_node(other.node)),
    };
    let paths = one.path.as_ref().zip(other.path.as_ref());
    match paths {
        Some((one, other)) => format!("{}, {nodes}", one.meets(other)),
        None => nodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::State;

    const WAY: Way = Way {
        reaches: true,
        rank: Some(0),
        has_atomics: Some(true),
    };
    const NO_WAY: Way = Way {
        reaches: false,
        rank: None,
        has_atomics: None,
    };

    fn shown(ways: [Way; 2], nodes: [Option<u32>; 2]) -> (State, String) {
        let pair = Pair { gpus: [0, 2], ways };
        let places = nodes.map(|node| Place { node, path: None });
        let speed = |gb_per_s| links::Way::Speed {
            gb_per_s,
            latency_us: 8.25,
        };
        let links = Links {
            pairs: vec![PairLink {
                gpus: [0, 2],
                link: Some(String::from("NVLink")),
                ways: [speed(370.04), speed(37.0)],
            }],
            end: String::new(),
        };
        let check = finding(&pair, &links, &places);
        assert_eq!(check.how.is_none(), check.state == State::Yes);
        (check.state, check.found)
    }

    #[test]
    fn pairs_are_told_with_who_reaches_whom_and_how() {
        let both = "GPUs 0 and 2: peers, linked by NVLink; copies 370.0 GB/s, 8.2 µs for 4 bytes, \
                    and back 37.0 GB/s, 8.2 µs for 4 bytes; performance rank 0, atomics, as NVLink \
                    has them; both at node 1";
        assert_eq!(
            shown([WAY, WAY], [Some(1); 2]),
            (State::Yes, both.to_owned())
        );
        let none = "GPUs 0 and 2: no peers, linked by NVLink; copies 370.0 GB/s through memory of \
                    the host, 8.2 µs for 4 bytes, and back 37.0 GB/s through memory of the host, \
                    8.2 µs for 4 bytes; performance rank unknown, atomics unknown; both at an \
                    unknown node";
        assert_eq!(shown([NO_WAY; 2], [None; 2]), (State::No, none.to_owned()));
        for (ways, reaches) in [
            ([WAY, NO_WAY], "only GPU 0 reaches the other"),
            ([NO_WAY, WAY], "only GPU 2 reaches the other"),
        ] {
            let (state, found) = shown(ways, [Some(0), Some(1)]);
            assert_eq!(state, State::Partly);
            assert!(
                found.contains(reaches) && found.ends_with("at node 0 and node 1"),
                "{found}"
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_told_with_the_reason() {
        let ways = [WAY, WAY];
        let pair = Pair { gpus: [0, 2], ways };
        let places = [None; 2].map(|node| Place { node, path: None });
        let mut links = Links {
            pairs: Vec::new(),
            end: String::from("the driver took more than 30 s"),
        };
        let found = finding(&pair, &links, &places).found;
        let words = "peers; copies not measured: the driver took more than 30 s; performance";
        assert!(found.contains(words), "{found}");
        let unknown = |reason: &str, wrong| links::Way::Unknown {
            reason: reason.to_owned(),
            wrong,
        };
        for (back, wrong, words) in [
            (
                "no memory",
                false,
                "peers; copies not measured: no memory; perf",
            ),
            (
                "no time",
                true,
                "copies not measured (no memory), and back not measured (no time);",
            ),
        ] {
            links.pairs = vec![PairLink {
                gpus: [0, 2],
                link: None,
                ways: [unknown("no memory", false), unknown(back, wrong)],
            }];
            let check = finding(&pair, &links, &places);
            assert!(check.found.contains(words), "{}", check.found);
            assert_eq!(check.state == State::No, wrong);
            assert_eq!(check.pair.as_ref(), links.pairs.first());
        }
    }

    #[test]
    fn a_link_that_differs_by_direction_is_told_for_both() {
        let slow = Way {
            rank: Some(1),
            has_atomics: Some(false),
            ..WAY
        };
        let (_, found) = shown([WAY, slow], [None; 2]);
        let words = "rank 0, atomics, as NVLink has them, and back performance rank 1, no atomics;";
        assert!(found.contains(words), "{found}");
    }
}
