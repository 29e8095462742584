//! From a direction to a face of a cube (CUDA C++ Programming Guide, "Cubemap Textures").

/// Returns the face that a direction from the centre of a cube meets, and the coordinates there,
/// from 0 to 1. Of axes that are equally long, z comes before y, and y before x.
pub(crate) fn direction([x, y, z]: [f32; 3]) -> (u64, [f32; 2]) {
    let [along_x, along_y, along_z] = [x, y, z].map(f32::abs);
    let (face, length, [s, t]) = if along_z >= along_x && along_z >= along_y {
        match z.is_sign_negative() {
            false => (4, along_z, [x, -y]),
            true => (5, along_z, [-x, -y]),
        }
    } else if along_y >= along_x {
        match y.is_sign_negative() {
            false => (2, along_y, [x, z]),
            true => (3, along_y, [x, -z]),
        }
    } else {
        match x.is_sign_negative() {
            false => (0, along_x, [-z, -y]),
            true => (1, along_x, [z, -y]),
        }
    };
    (face, [s, t].map(|minor| (minor / length + 1.0) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_axis_chooses_the_face() {
        for (given, face, place) in [
            ([2.0, 1.0, 0.5], 0, [0.375, 0.25]),
            ([-2.0, 1.0, 0.5], 1, [0.625, 0.25]),
            ([1.0, 2.0, 0.5], 2, [0.75, 0.625]),
            ([1.0, -2.0, 0.5], 3, [0.75, 0.375]),
            ([1.0, 0.5, 2.0], 4, [0.75, 0.375]),
            ([1.0, 0.5, -2.0], 5, [0.25, 0.375]),
            ([1.0, 1.0, 1.0], 4, [1.0, 0.0]),
            ([1.0, 1.0, 0.5], 2, [1.0, 0.75]),
        ] {
            assert_eq!(direction(given), (face, place), "{given:?}");
        }
    }

    #[test]
    fn every_direction_meets_a_face() {
        for number in [0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE] {
            assert!(direction([number; 3]).0 < 6);
            assert!(direction([number, -number, 1.0]).0 < 6);
        }
    }
}
