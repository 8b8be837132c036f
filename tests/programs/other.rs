// A method with a loop whose body is inlined from the standard library, for its name and lines.
mod field {
    pub struct Grid(pub Vec<f64>);

    #[inline(always)]
    fn damped(value: f64) -> f64 {
        (value * 1.0001).sqrt()
    }

    impl Grid {
        #[inline(never)]
        pub fn relax(&mut self, limit: f64) -> f64 {
            // Own code comes first: a procedure's place is the line of its first instruction.
            if limit < 0.0 {
                return limit;
            }
            let mut sum = 0.0;
            for value in self.0.iter_mut() {
                *value = damped(*value);
                sum += value.min(limit);
            }
            sum
        }
    }
}

fn main() {
    println!("{}", field::Grid(vec![1.5; 1000]).relax(9.5));
}
