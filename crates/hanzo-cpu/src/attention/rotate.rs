//! A fixed rotation of a head's elements, which spreads what stands out in one of them over all.
//!
//! An int8 cache has one scale a token and head, so a single large element makes all others coarse. Products of keys and queries
//! do not change when both are rotated, and a weighted sum of rotated values is the rotated sum, which is rotated back once a
//! row; quantized, the rotated elements are finer. (QuaRot, Ashkboos et al. 2024, rotates keys and values so.)

/// Longest run that is rotated as one.
const MOST: usize = 512;
/// Longest head that is rotated at all.
pub(super) const LONGEST: usize = 1024;

/// Multiplies `x` by the orthonormal Hadamard matrix of the greatest power of two that divides its length (and is at most
/// 512), run by run; heads of more than [`LONGEST`] elements stay as they are. It is its own inverse. Sums are formed with strides 1, 2, 4, … and scaled last, in f32: the same bits on
/// every machine.
#[inline(always)]
pub(super) fn rotate(x: &mut [f32]) {
    let n = (1 << x.len().trailing_zeros().min(MOST.trailing_zeros())).min(x.len());
    if n < 2 || x.len() > LONGEST {
        return;
    }
    let scale = 1.0 / (n as f32).sqrt();
    for run in x.chunks_exact_mut(n) {
        let mut stride = 1;
        while stride < n {
            for pair in run.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            stride *= 2;
        }
        for x in run {
            *x *= scale;
        }
    }
}

/// `x` rotated, in the buffer; as it is where the buffer is too short for it.
#[inline(always)]
pub(super) fn rotated<'a>(x: &'a [f32], buffer: &'a mut [f32; LONGEST]) -> &'a [f32] {
    let Some(out) = buffer.get_mut(..x.len()) else { return x };
    out.copy_from_slice(x);
    rotate(out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_its_own_inverse_and_keeps_products() {
        for n in [1usize, 2, 16, 40, 64, 80, 96, 100, 127, 128, 256, 576, 1024, 2048] {
            let of =
                |seed: usize| (0..n).map(|i| ((i * 37 + seed * 11) % 23) as f32 - 11.0).collect::<Vec<_>>();
            let (a, b) = (of(1), of(2));
            let (mut x, mut y) = (a.clone(), b.clone());
            rotate(&mut x);
            rotate(&mut y);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            assert!((dot(&a, &b) - dot(&x, &y)).abs() < 1e-2, "{n}");
            assert_eq!(x == a, n % 2 == 1 || n > LONGEST, "{n}");
            let mut buffer = [0.0; LONGEST];
            assert_eq!(rotated(&a, &mut buffer), x);
            rotate(&mut x);
            assert!(x.iter().zip(&a).all(|(x, a)| (x - a).abs() < 1e-4), "{n}");
        }
    }

    /// The matrix by its definition: the sign is the parity of the indices' common bits.
    #[test]
    fn it_is_the_hadamard_matrix() {
        let n = 32usize;
        for column in 0..n {
            let mut x = vec![0.0; n];
            x[column] = 1.0;
            rotate(&mut x);
            for (row, x) in x.iter().enumerate() {
                let sign = if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                assert!((x - sign / (n as f32).sqrt()).abs() < 1e-7, "{row} {column}");
            }
        }
    }
}
