//! Plain tables: words in columns.

/// Returns `lines` as text, one line each. The first cell of each line is at the left of its
/// column, all others at the right of theirs. All lines must have as many cells as the first one.
pub fn in_columns(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max();
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    lines.iter().map(|line| aligned(line, &widths)).collect()
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        text += &match column {
            0 => format!("{cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        };
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let lines = [line(["VM", "STATE", "N"]), line(["vm10", "ended", "12"])];
        assert_eq!(in_columns(&lines), "VM    STATE   N\nvm10  ended  12\n");
        assert_eq!(in_columns(&[]), "");
    }
}
