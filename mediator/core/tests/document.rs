//! `docs/observing.md` lists the statistics that the code has. To write the list again:
//! `CAUSEWAY_BLESS=1 cargo test -p causeway-mediator --test document`.

use std::fmt::Write as _;
use std::path::Path;

use causeway_mediator::statistics::STATISTICS;

const BEGIN: &str = "<!-- statistics: generated from mediator/core/src/statistics.rs -->\n";
const END: &str = "<!-- end of statistics -->\n";

#[test]
fn the_document_lists_the_statistics_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observing.md");
    let found = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = found.split_once(BEGIN).expect("a begin mark");
    let (_, after) = rest.split_once(END).expect("an end mark");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("CAUSEWAY_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            found == wanted,
            "docs/observing.md is out of date; run with CAUSEWAY_BLESS=1"
        );
    }
}

fn table() -> String {
    let mut out =
        "| in `session` | metric `causeway_gpu_…` | kind | what |\n|---|---|---|---|\n".to_owned();
    for s in &STATISTICS {
        let kind = format!("{:?}", s.kind).to_lowercase();
        writeln!(
            out,
            "| `{}` | `{}` | {kind} | {} |",
            s.name, s.metric, s.help
        )
        .unwrap();
    }
    out
}
