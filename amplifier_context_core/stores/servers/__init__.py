"""What stores on servers share: claims that expire, order, retries, a loop of their own."""
